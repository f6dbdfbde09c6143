// Python's two ways of formatting: "%s" % values, and "{}".format(values) with its format specifications.
#pragma once

#include <string>
#include <string_view>

#include "text/jinja/arguments.h"

namespace kv8::text::jinja {

std::string percent_format(std::string_view format, const Value& values);
std::string brace_format(std::string_view format, const Arguments& arguments);

}  // namespace kv8::text::jinja
