// The tests of the template language: `x is defined` and so on.
#pragma once

#include <string_view>

#include "text/jinja/arguments.h"

namespace kv8::text::jinja {

const Native* find_test(std::string_view name);  // nullptr if there is none

}  // namespace kv8::text::jinja
