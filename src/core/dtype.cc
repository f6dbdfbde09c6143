#include "core/dtype.h"

#include <array>

#include "core/check.h"

namespace kv8 {

namespace {

constexpr std::array<DTypeInfo, 25> kInfos = {{
    {"f64", 1, 8},     {"f32", 1, 4},      {"f16", 1, 2},      {"bf16", 1, 2},     {"f8_e4m3", 1, 1},
    {"f8_e5m2", 1, 1}, {"i64", 1, 8},      {"i32", 1, 4},      {"i16", 1, 2},      {"i8", 1, 1},
    {"u64", 1, 8},     {"u32", 1, 4},      {"u16", 1, 2},      {"u8", 1, 1},       {"bool", 1, 1},
    {"q4_0", 32, 18},  {"q4_1", 32, 20},   {"q5_0", 32, 22},   {"q5_1", 32, 24},   {"q8_0", 32, 34},
    {"q2_k", 256, 84}, {"q3_k", 256, 110}, {"q4_k", 256, 144}, {"q5_k", 256, 176}, {"q6_k", 256, 210},
}};

}  // namespace

const DTypeInfo& dtype_info(DType dtype) {
  const auto index = static_cast<size_t>(dtype);
  KV8_CHECK(index < kInfos.size(), "dtype {}", index);
  return kInfos[index];
}

}  // namespace kv8
