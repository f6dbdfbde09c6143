// The filters of the template language, in three tables by what they work on.
#pragma once

#include <functional>
#include <span>
#include <string_view>

#include "text/jinja/arguments.h"

namespace kv8::text::jinja {

const Native* find_filter(std::string_view name);  // nullptr if there is none

std::span<const Native> text_filters();
std::span<const Native> sequence_filters();
std::span<const Native> value_filters();

// What an `attribute` argument picks from an item: "user.name", "0", 2; the item itself for None. An
// attribute that is missing becomes `fallback`, if that is given.
std::function<Value(const Value&)> attribute_getter(const Value& attribute, const Value& fallback = Value());

}  // namespace kv8::text::jinja
