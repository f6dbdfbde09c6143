// The tests of the template language: `x is defined` and so on.
#pragma once

#include <span>
#include <string_view>

#include "text/jinja/arguments.h"

namespace kv8::text::jinja {

const Native* find_test(std::string_view name);  // nullptr if there is none
std::span<const Native> all_tests();

}  // namespace kv8::text::jinja
