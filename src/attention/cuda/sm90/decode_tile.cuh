// The seam between the decode kernel and the formats of a cache: decode_fp8.cuh and decode_bf16.cuh say what
// each does with a tile.
#pragma once

#include "kv8/attention.h"

namespace kv8::attention::cuda::sm90 {

template <CacheFormat kFormat, int kHeadDim, int kColumns, Fp8Accumulate kMode>
struct DecodeTile;

}  // namespace kv8::attention::cuda::sm90
