#include "text/jinja/text_functions.h"

#include <algorithm>
#include <cstring>

#include "text/jinja/failure.h"
#include "text/jinja/utf8.h"

namespace kv8::text::jinja {

namespace {

constexpr size_t kCheckEvery = 1024;  // parts; each takes more memory than a short piece of text

struct Span {
  size_t begin;
  size_t end;
};

// The words of a text, as byte ranges.
std::vector<Span> words(std::string_view text) {
  std::vector<Span> spans;
  for (size_t offset = 0; offset < text.size();) {
    const size_t start = offset;
    if (is_space(next_character(text, offset))) continue;
    if (spans.empty() || spans.back().end != start) {
      spans.push_back({start, start});
      if (spans.size() % kCheckEvery == 0) checked_size(spans.size(), sizeof(Span));
    }
    spans.back().end = offset;
  }
  return spans;
}

std::string repeat_text(std::string_view unit, size_t count) {
  std::string text;
  text.reserve(checked_size(unit.size(), count));
  for (size_t i = 0; i < count; ++i) text += unit;
  return text;
}

void add_part(std::vector<std::string>& parts, std::string_view part) {
  parts.emplace_back(part);
  if (parts.size() % kCheckEvery == 0) checked_size(parts.size(), sizeof(std::string));
}

size_t limited(size_t available, int64_t limit) {
  return limit < 0 ? available : std::min(available, static_cast<size_t>(limit));
}

}  // namespace

size_t find(std::string_view text, std::string_view wanted, size_t from) {
  if (from > text.size()) return std::string_view::npos;
  if (wanted.empty()) return from;
  const std::string_view rest = text.substr(from);
  const void* at = ::memmem(rest.data(), rest.size(), wanted.data(), wanted.size());
  const size_t offset = at == nullptr ? rest.size() : static_cast<const char*>(at) - rest.data();
  spend_pass(offset + wanted.size());
  return at == nullptr ? std::string_view::npos : from + offset;
}

size_t rfind(std::string_view text, std::string_view wanted) {
  spend_pass(text.size());  // may be called many times for one text
  check_fits(text.size());
  const std::string reversed(text.rbegin(), text.rend());
  const std::string reversed_wanted(wanted.rbegin(), wanted.rend());
  const size_t at = find(reversed, reversed_wanted);
  return at == std::string_view::npos ? at : text.size() - at - wanted.size();
}

std::string pad(std::string_view text, int64_t width, Align align, std::string_view fill) {
  if (character_count(fill) != 1) fail("The fill character must be exactly one character long");
  const auto length = static_cast<int64_t>(character_count(text));
  if (width <= length) return std::string(text);
  check_fits(static_cast<size_t>(width));
  const int64_t total = width - length;
  int64_t before = 0;
  if (align == Align::right) before = total;
  if (align == Align::center) before = total / 2 + (total & width & 1);
  return repeat_text(fill, static_cast<size_t>(before)) + std::string(text) +
         repeat_text(fill, static_cast<size_t>(total - before));
}

std::string replace_all(std::string_view text, std::string_view from, std::string_view to, int64_t count) {
  std::string result;
  size_t offset = 0;
  for (int64_t done = 0; count < 0 || done < count; ++done) {
    const size_t at = find(text, from, offset);
    if (at == std::string_view::npos) break;
    result += text.substr(offset, at - offset);
    result += to;
    offset = at + from.size();
    check_fits(result.size());
    if (from.empty()) {  // Python puts `to` before every character and at the end
      if (offset >= text.size()) break;
      const size_t start = offset;
      next_character(text, offset);
      result += text.substr(start, offset - start);
    }
  }
  result += text.substr(offset);
  return result;
}

std::vector<std::string> split(std::string_view text, const std::optional<std::string>& separator,
                               int64_t limit) {
  std::vector<std::string> parts;
  if (!separator) {
    const auto spans = words(text);
    const size_t single = limited(spans.size(), limit);
    for (size_t i = 0; i < single; ++i)
      add_part(parts, text.substr(spans[i].begin, spans[i].end - spans[i].begin));
    if (single < spans.size()) add_part(parts, text.substr(spans[single].begin));
    return parts;
  }
  if (separator->empty()) fail("empty separator");
  size_t offset = 0;
  for (int64_t done = 0; limit < 0 || done < limit; ++done) {
    const size_t at = find(text, *separator, offset);
    if (at == std::string_view::npos) break;
    add_part(parts, text.substr(offset, at - offset));
    offset = at + separator->size();
  }
  add_part(parts, text.substr(offset));
  return parts;
}

std::vector<std::string> split_right(std::string_view text, const std::optional<std::string>& separator,
                                     int64_t limit) {
  if (limit < 0) return split(text, separator, limit);
  std::vector<std::string> parts;
  if (!separator) {
    const auto spans = words(text);
    const size_t single = limited(spans.size(), limit);
    const size_t rest = spans.size() - single;
    if (rest > 0) add_part(parts, text.substr(0, spans[rest - 1].end));
    for (size_t i = rest; i < spans.size(); ++i)
      add_part(parts, text.substr(spans[i].begin, spans[i].end - spans[i].begin));
    return parts;
  }
  if (separator->empty()) fail("empty separator");
  std::string_view rest = text;
  for (int64_t done = 0; done < limit; ++done) {
    const size_t at = rfind(rest, *separator);
    if (at == std::string_view::npos) break;
    add_part(parts, rest.substr(at + separator->size()));
    rest = rest.substr(0, at);
  }
  add_part(parts, rest);
  std::reverse(parts.begin(), parts.end());
  return parts;
}

std::string join(std::string_view separator, const std::vector<std::string>& parts) {
  std::string text;
  for (size_t i = 0; i < parts.size(); ++i) {
    if (i > 0) text += separator;
    text += parts[i];
    check_fits(text.size());
  }
  return text;
}

Value to_list(std::vector<std::string> parts) {
  std::vector<Value> items;
  items.reserve(parts.size());
  for (std::string& part : parts) items.emplace_back(std::move(part));
  return Value::list(std::move(items));
}

}  // namespace kv8::text::jinja
