// Oniguruma's Ruby syntax, rewritten for PCRE2 where the two differ.
#include <vector>

#include "text/regex.h"
#include "text/unicode.h"

namespace kv8::text {

namespace {

constexpr std::string_view kSpaces = R"(\x{09}-\x{0D}\x{85}\p{Z})";
// Besides what Unicode calls alphabetic, marks, digits and connectors, Oniguruma has Latin-1's superscripts
// and fractions.
constexpr std::string_view kWord =
    R"(\p{L}\p{M}\p{Nd}\p{Nl}\p{Pc}\x{B2}\x{B3}\x{B9}\x{BC}-\x{BE}\x{24B6}-\x{24E9})"
    R"(\x{1F130}-\x{1F149}\x{1F150}-\x{1F169}\x{1F170}-\x{1F189})";
constexpr std::string_view kHexDigits = "0-9A-Fa-f";

// The members of a class that \s, \w and \h stand for; empty for other letters.
std::string_view class_members(char letter) {
  switch (letter) {
    case 's':
    case 'S':
      return kSpaces;
    case 'w':
    case 'W':
      return kWord;
    case 'h':
    case 'H':
      return kHexDigits;
    default:
      return {};
  }
}

class Translator {
 public:
  Translator(std::string_view pattern, std::string_view where) : in_(pattern), where_(where) {}

  Expected<std::string> run() {
    if (!is_valid_utf8(in_)) return refuse("it isn't valid UTF-8");
    while (at_ < in_.size()) {
      const char c = in_[at_];
      if (c == '\\') {
        atom_ = out_.size();
        translate_escape(false);
      } else if (c == '[') {
        atom_ = out_.size();
        KV8_RETURN_IF_ERROR(translate_class());
      } else if (c == '(') {
        groups_.push_back(out_.size());
        translate_group_head();
      } else if (c == ')') {
        atom_ = groups_.empty() ? 0 : groups_.back();
        if (!groups_.empty()) groups_.pop_back();
        copy(1);
      } else if (c == '{' && translate_repeat()) {
        continue;
      } else if (c == '?' || c == '*' || c == '+') {
        copy(1);
      } else {
        atom_ = out_.size();
        copy(utf8_length(c));
      }
    }
    return std::move(out_);
  }

 private:
  tl::unexpected<Error> refuse(std::string_view why) const {
    return make_error(ErrorCode::unsupported, "{}: regular expression \"{}\": {}", where_, in_, why);
  }

  void copy(size_t length) {
    length = std::min(length, in_.size() - at_);
    out_ += in_.substr(at_, length);
    at_ += length;
  }

  void translate_escape(bool in_class) {
    const char letter = at_ + 1 < in_.size() ? in_[at_ + 1] : '\0';
    const std::string_view members = class_members(letter);
    const bool negated = letter == 'S' || letter == 'W' || letter == 'H';
    if (!members.empty() && !in_class) {
      out_ += negated ? "[^" : "[";
      out_ += members;
      out_ += ']';
      at_ += 2;
    } else if (!members.empty() && !negated) {
      out_ += members;
      at_ += 2;
    } else if (letter == 'u' && at_ + 6 <= in_.size()) {  // \u00E9
      out_ += "\\x{";
      out_ += in_.substr(at_ + 2, 4);
      out_ += '}';
      at_ += 6;
    } else {
      copy(1);
      if (at_ < in_.size()) copy(utf8_length(in_[at_]));
    }
  }

  Status translate_class() {
    copy(1);
    if (at_ < in_.size() && in_[at_] == '^') copy(1);
    if (at_ < in_.size() && in_[at_] == ']') copy(1);  // a bracket in front is a member
    while (at_ < in_.size() && in_[at_] != ']') {
      const std::string_view rest = in_.substr(at_);
      if (rest.starts_with("[:")) {
        const size_t end = rest.find(":]");
        copy(end == std::string_view::npos ? 1 : end + 2);
      } else if (rest[0] == '[') {
        return refuse("a class inside a class isn't supported");
      } else if (rest.starts_with("&&")) {
        return refuse("the intersection of classes (&&) isn't supported");
      } else if (rest[0] == '\\') {
        translate_escape(true);
      } else {
        copy(utf8_length(rest[0]));
      }
    }
    copy(1);
    return {};
  }

  // (?m: is Ruby's "the dot matches newlines", which PCRE2 calls s.
  void translate_group_head() {
    copy(1);
    if (at_ >= in_.size() || in_[at_] != '?') return;
    copy(1);
    size_t end = at_;
    while (end < in_.size() && std::string_view("imxs-").find(in_[end]) != std::string_view::npos) ++end;
    if (end == at_ || end == in_.size() || (in_[end] != ':' && in_[end] != ')')) return;
    for (; at_ < end; ++at_) out_ += in_[at_] == 'm' ? 's' : in_[at_];
  }

  // {2}, {2,}, {,3}, {2,3}; false if it's a brace like any other character.
  bool translate_repeat() {
    size_t end = at_ + 1;
    bool digits = false;
    int commas = 0;
    for (; end < in_.size() && in_[end] != '}'; ++end) {
      if (in_[end] == ',') {
        ++commas;
      } else if (in_[end] >= '0' && in_[end] <= '9') {
        digits = true;
      } else {
        return false;
      }
    }
    if (end >= in_.size() || !digits || commas > 1) return false;
    std::string repeat(in_.substr(at_, end + 1 - at_));
    if (repeat[1] == ',') repeat.insert(1, "0");
    at_ = end + 1;
    if (at_ < in_.size() && in_[at_] == '+') {  // not possessive in Ruby: the group repeats
      out_.insert(atom_, "(?:");
      out_ += repeat + ")";
    } else {
      out_ += repeat;
    }
    return true;
  }

  std::string_view in_;
  std::string_view where_;
  size_t at_ = 0;
  std::string out_;
  size_t atom_ = 0;  // where in out_ the last atom starts: what a quantifier applies to
  std::vector<size_t> groups_;
};

}  // namespace

Expected<std::string> translate_pattern(std::string_view pattern, std::string_view where) {
  return Translator(pattern, where).run();
}

}  // namespace kv8::text
