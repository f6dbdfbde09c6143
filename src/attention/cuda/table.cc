#include "attention/cuda/table.h"

#include "attention/cuda/check.h"
#include "attention/cuda/sm90/decode.h"
#include "attention/cuda/sm90/prefill_fp8.h"
#include "attention/cuda/sm90/shapes.h"

namespace kv8::attention::cuda {

namespace {

template <CacheFormat kFormat, int kHeadDim, int kColumns, Fp8Accumulate kMode>
constexpr Kernel decode_kernel() {
  return {{Phase::decode, kFormat, kHeadDim, kColumns, kMode},
          sm90::launch_decode<kFormat, kHeadDim, kColumns, kMode>};
}

template <int kHeadDim>
constexpr Kernel prefill_kernel() {
  return {{Phase::prefill, CacheFormat::fp8, kHeadDim, sm90::kPrefillRows, Fp8Accumulate::tile},
          sm90::launch_prefill_fp8<kHeadDim>};
}

#define KV8_DECODE(D, N)                                                 \
  decode_kernel<CacheFormat::fp8, D, N, Fp8Accumulate::tile>(),          \
      decode_kernel<CacheFormat::fp8, D, N, Fp8Accumulate::two_level>(), \
      decode_kernel<CacheFormat::fp8, D, N, Fp8Accumulate::single>(),    \
      decode_kernel<CacheFormat::bf16, D, N, Fp8Accumulate::tile>()

constexpr Kernel kKernels[] = {
    KV8_DECODE(64, 8),    KV8_DECODE(64, 16),    KV8_DECODE(64, 32),   //
    KV8_DECODE(128, 8),   KV8_DECODE(128, 16),   KV8_DECODE(128, 32),  //
    KV8_DECODE(256, 8),   KV8_DECODE(256, 16),                         //
    prefill_kernel<64>(), prefill_kernel<128>(), prefill_kernel<256>(),
};

#undef KV8_DECODE

}  // namespace

const char* to_string(Phase phase) {
  return phase == Phase::decode ? "decode" : "prefill";
}

const char* to_string(CacheFormat format) {
  return format == CacheFormat::fp8 ? "fp8" : "bf16";
}

const char* to_string(Fp8Accumulate accumulate) {
  switch (accumulate) {
    case Fp8Accumulate::tile:
      return "tile";
    case Fp8Accumulate::two_level:
      return "two-level";
    case Fp8Accumulate::single:
      return "single";
  }
  return "?";
}

std::span<const Kernel> kernels() {
  return kKernels;
}

Status find_kernel(const KernelDescriptor& descriptor, const Kernel** kernel) {
  bool other_mode = false;
  for (const Kernel& candidate : kKernels) {
    if (candidate.descriptor == descriptor) {
      *kernel = &candidate;
      return {};
    }
    other_mode |= candidate.descriptor.phase == descriptor.phase &&
                  candidate.descriptor.format == descriptor.format &&
                  candidate.descriptor.head_dim == descriptor.head_dim &&
                  candidate.descriptor.columns == descriptor.columns;
  }
  if (other_mode) {
    return unsupported("%s, %s, head_dim %d: there is no kernel for mode %s; mode tile has one",
                       to_string(descriptor.phase), to_string(descriptor.format), descriptor.head_dim,
                       to_string(descriptor.accumulate));
  }
  return unsupported("%s: there is no kernel for a cache in %s with head_dim %d", to_string(descriptor.phase),
                     to_string(descriptor.format), descriptor.head_dim);
}

}  // namespace kv8::attention::cuda
