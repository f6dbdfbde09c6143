#include "attention/cpu/f32_kernels.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "attention/cpu/f32_kernels.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "attention/cpu/many_rows-inl.h"
#if HWY_TARGET != HWY_SCALAR  // which has no lanes to run along head_dim
#include "attention/cpu/few_rows-inl.h"
#endif

HWY_BEFORE_NAMESPACE();
namespace kv8::attention::cpu {
namespace HWY_NAMESPACE {

template <class W>
void attend_format(const RowBlock& block, int64_t first_tile, int64_t end_tile, F32Scratch& scratch,
                   const PartialRows& out) {
#if HWY_TARGET != HWY_SCALAR
  if (block.rows <= kFewRows && attend_few_rows<W>(block, first_tile, end_tile, scratch, out)) return;
#endif
  attend_many_rows<W>(block, first_tile, end_tile, scratch, out);
}

void attend_block(const RowBlock& block, int64_t first_tile, int64_t end_tile, F32Scratch& scratch,
                  const PartialRows& out) {
  switch (block.problem->cache.format) {
    case KvFormat::f32:
      return attend_format<WidenF32>(block, first_tile, end_tile, scratch, out);
    case KvFormat::bf16:
      return attend_format<WidenBf16>(block, first_tile, end_tile, scratch, out);
    case KvFormat::fp8:
      return attend_format<WidenFp8>(block, first_tile, end_tile, scratch, out);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace kv8::attention::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace kv8::attention::cpu {

HWY_EXPORT(attend_block);

void attend_f32(const RowBlock& block, int64_t first_tile, int64_t end_tile, F32Scratch& scratch,
                const PartialRows& out) {
  HWY_DYNAMIC_DISPATCH(attend_block)(block, first_tile, end_tile, scratch, out);
}

}  // namespace kv8::attention::cpu
#endif  // HWY_ONCE
