// The 16-bit floats and e5m2 under the name that the rest of numerics has; core/half.h says what they do.
#pragma once

#include "core/half.h"

namespace kv8::numerics {

using kv8::bf16_to_float;
using kv8::e5m2_to_float;
using kv8::f16_to_float;
using kv8::float_to_bf16;
using kv8::float_to_f16;

}  // namespace kv8::numerics
