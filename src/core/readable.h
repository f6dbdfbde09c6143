// Numbers as people read them.
#pragma once

#include <cstdint>
#include <string>

namespace kv8 {

std::string with_thousands(int64_t number);  // 131,072
std::string human_bytes(double bytes);       // 92.9 MB (powers of 1000)

}  // namespace kv8
