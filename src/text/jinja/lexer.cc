#include "text/jinja/lexer.h"

#include <algorithm>
#include <array>

#include "text/jinja/python_text.h"
#include "text/jinja/string_literal.h"
#include "text/jinja/utf8.h"

namespace kv8::text::jinja {

namespace {

// Longer ones first, so that the first that matches is the longest.
constexpr std::array<std::string_view, 26> kOperators = {"//", "**", "==", "!=", ">=", "<=", "+", "-", "/",
                                                         "*",  "%",  "~",  "[",  "]",  "(",  ")", "{", "}",
                                                         ">",  "<",  "=",  ".",  ":",  "|",  ",", ";"};

std::string normalize_newlines(std::string_view source) {
  std::string text;
  text.reserve(source.size());
  for (size_t i = 0; i < source.size(); ++i) {
    if (source[i] != '\r') {
      text += source[i];
      continue;
    }
    text += '\n';
    if (i + 1 < source.size() && source[i + 1] == '\n') ++i;
  }
  if (text.ends_with('\n')) text.pop_back();
  return text;
}

class Lexer {
 public:
  explicit Lexer(std::string_view source) : source_(normalize_newlines(source)) {}

  std::vector<Token> run() {
    while (at_ < source_.size()) {
      const size_t open = find_tag(at_);
      if (open == std::string::npos) {
        emit_text(at_, source_.size());
        at_ = source_.size();
        break;
      }
      tag(open);
    }
    emit(TokenKind::end, {});
    return std::move(tokens_);
  }

 private:
  Position here() {
    for (; counted_ < at_; ++counted_) {
      if (source_[counted_] == '\n') {
        ++position_.line;
        position_.column = 1;
      } else if ((static_cast<unsigned char>(source_[counted_]) & 0xC0) != 0x80) {
        ++position_.column;
      }
    }
    return position_;
  }

  void emit(TokenKind kind, std::string text) { tokens_.push_back({kind, std::move(text), here()}); }

  void emit_text(size_t begin, size_t end) {
    if (begin < end) emit(TokenKind::text, source_.substr(begin, end - begin));
  }

  size_t find_tag(size_t from) const {
    for (size_t open = source_.find('{', from); open != std::string::npos;
         open = source_.find('{', open + 1)) {
      const char kind = open + 1 < source_.size() ? source_[open + 1] : 0;
      if (kind == '{' || kind == '%' || kind == '#') return open;
    }
    return std::string::npos;
  }

  size_t skip_space(size_t at) const {
    while (at < source_.size()) {
      size_t next = at;
      if (!is_space(next_character(source_, next))) break;
      at = next;
    }
    return at;
  }

  bool starts_with(size_t at, std::string_view text) const {
    return source_.compare(at, text.size(), text) == 0;
  }

  // Where the text before a tag ends, by the tag's sign ('-', '+' or 0).
  size_t text_end(size_t open, char sign, bool is_block) const {
    const std::string_view text = std::string_view(source_).substr(at_, open - at_);
    if (sign == '-') return at_ + strip(text, std::nullopt, false, true).size();
    if (sign == '+' || !is_block) return open;
    const size_t newline = text.rfind('\n');
    const size_t line = newline == std::string_view::npos ? 0 : newline + 1;
    const bool begins_line = line > 0 || line_starting_;
    return begins_line && skip_space(at_ + line) >= open ? at_ + line : open;
  }

  void tag(size_t open) {
    const char kind = source_[open + 1];
    size_t inside = open + 2;
    char sign = 0;
    if (inside < source_.size() && (source_[inside] == '-' || source_[inside] == '+'))
      sign = source_[inside++];
    emit_text(at_, text_end(open, sign, kind != '{'));
    at_ = open;
    if (kind == '#') {
      comment(inside);
    } else if (kind == '%' && raw_begin(inside)) {
      raw();
    } else {
      emit(kind == '{' ? TokenKind::print_begin : TokenKind::block_begin, {});
      at_ = inside;
      while (!tag_end(kind == '%')) token();
    }
    line_starting_ = at_ > 0 && source_[at_ - 1] == '\n';
  }

  void comment(size_t inside) {
    const size_t close = source_.find("#}", inside);
    if (close == std::string::npos) fail_at(here(), "Missing end of comment tag");
    const char sign = close > inside ? source_[close - 1] : 0;
    at_ = close + 2;
    after_tag(sign);
  }

  // After the closing delimiter of a block or comment.
  void after_tag(char sign) {
    if (sign == '-') {
      at_ = skip_space(at_);
    } else if (sign != '+' && at_ < source_.size() && source_[at_] == '\n') {
      ++at_;
    }
  }

  // Moves behind "raw %}" if it stands at `inside`. The newline after it stays, as in Jinja2.
  bool raw_begin(size_t inside) {
    size_t at = skip_space(inside);
    if (!starts_with(at, "raw")) return false;
    at = skip_space(at + 3);
    if (starts_with(at, "-%}")) {
      at_ = skip_space(at + 3);
      return true;
    }
    if (!starts_with(at, "%}")) return false;
    at_ = at + 2;
    return true;
  }

  void raw() {
    const size_t begin = at_;
    for (size_t open = source_.find("{%", begin); open != std::string::npos;
         open = source_.find("{%", open + 1)) {
      size_t at = open + 2;
      char sign = 0;
      if (at < source_.size() && (source_[at] == '-' || source_[at] == '+')) sign = source_[at++];
      at = skip_space(at);
      if (!starts_with(at, "endraw")) continue;
      at = skip_space(at + 6);
      const char close =
          at < source_.size() && (source_[at] == '-' || source_[at] == '+') ? source_[at++] : '\0';
      if (!starts_with(at, "%}")) continue;
      line_starting_ = begin > 0 && source_[begin - 1] == '\n';
      const size_t end = text_end(open, sign, true);
      emit_text(begin, end);
      at_ = at + 2;
      after_tag(close);
      return;
    }
    fail_at(here(), "Missing end of raw directive");
  }

  // Consumes the end of a tag if it is here; inside brackets there is none.
  bool tag_end(bool is_block) {
    at_ = skip_space(at_);
    if (at_ >= source_.size()) fail_at(here(), "unexpected end of template: a tag isn't closed");
    if (!brackets_.empty()) return false;
    const std::string_view delimiter = is_block ? "%}" : "}}";
    const char sign = source_[at_] == '-' || (is_block && source_[at_] == '+') ? source_[at_] : '\0';
    const size_t close = at_ + (sign != 0 ? 1 : 0);
    if (!starts_with(close, delimiter)) return false;
    emit(is_block ? TokenKind::block_end : TokenKind::print_end, {});
    at_ = close + 2;
    if (is_block || sign == '-') after_tag(sign);
    return true;
  }

  void token() {
    size_t next = at_;
    const char32_t character = next_character(source_, next);
    if (character == '"' || character == '\'') {
      string_token();
    } else if (character < 0x80 && is_ascii_digit(static_cast<char>(character))) {
      number_token();
    } else if (is_word(character)) {
      size_t end = next;
      while (next < source_.size() && is_word(next_character(source_, next))) end = next;
      finish(TokenKind::name, end);
    } else {
      operator_token();
    }
  }

  void finish(TokenKind kind, size_t end) {
    emit(kind, source_.substr(at_, end - at_));
    at_ = end;
  }

  void string_token() {
    const char quote = source_[at_];
    size_t end = at_ + 1;
    while (end < source_.size() && source_[end] != quote) end += source_[end] == '\\' ? 2 : 1;
    if (end >= source_.size()) fail_at(here(), "a string has no closing {}", quote);
    const auto text = unescape(std::string_view(source_).substr(at_ + 1, end - at_ - 1));
    if (!text) fail_at(here(), "a string has an escape sequence that isn't valid");
    emit(TokenKind::string, *text);
    at_ = end + 1;
  }

  // Digits of a base with single '_' between them, from `at`; npos if there are none.
  template <class IsDigit>
  size_t digits_end(size_t at, IsDigit is_digit) const {
    if (at >= source_.size() || !is_digit(source_[at])) return std::string::npos;
    while (at < source_.size()) {
      const bool underscore = source_[at] == '_' && at + 1 < source_.size() && is_digit(source_[at + 1]);
      if (!underscore && !is_digit(source_[at])) break;
      ++at;
    }
    return at;
  }

  size_t float_end() const {
    const size_t whole = digits_end(at_, is_ascii_digit);
    size_t end = whole;
    if (end < source_.size() && source_[end] == '.') {
      const size_t fraction = digits_end(end + 1, is_ascii_digit);
      if (fraction != std::string::npos) end = fraction;
    }
    if (end < source_.size() && (source_[end] == 'e' || source_[end] == 'E')) {
      size_t exponent = end + 1;
      if (exponent < source_.size() && (source_[exponent] == '-' || source_[exponent] == '+')) ++exponent;
      exponent = digits_end(exponent, is_ascii_digit);
      if (exponent != std::string::npos) end = exponent;
    }
    const bool after_dot = at_ > 0 && source_[at_ - 1] == '.';
    return end > whole && !after_dot ? end : std::string::npos;
  }

  size_t prefixed_end() const {
    if (source_[at_] != '0' || at_ + 1 >= source_.size()) return std::string::npos;
    const size_t digits = at_ + 2 < source_.size() && source_[at_ + 2] == '_' ? at_ + 3 : at_ + 2;
    switch (source_[at_ + 1] | 0x20) {
      case 'b':
        return digits_end(digits, [](char c) { return c == '0' || c == '1'; });
      case 'o':
        return digits_end(digits, [](char c) { return c >= '0' && c <= '7'; });
      case 'x':
        return digits_end(
            digits, [](char c) { return is_ascii_digit(c) || ((c | 0x20) >= 'a' && (c | 0x20) <= 'f'); });
      default:
        return std::string::npos;
    }
  }

  void number_token() {
    TokenKind kind = TokenKind::floating;
    size_t end = float_end();
    if (end == std::string::npos) {
      kind = TokenKind::integer;
      end = prefixed_end();
    }
    if (end == std::string::npos) {  // 0 takes only zeros: "01" is two numbers, and an error of the parser
      end = source_[at_] == '0' ? digits_end(at_, [](char c) { return c == '0'; })
                                : digits_end(at_, is_ascii_digit);
    }
    finish(kind, end);
    std::string& text = tokens_.back().text;
    text.erase(std::remove(text.begin(), text.end(), '_'), text.end());
  }

  void operator_token() {
    for (const std::string_view symbol : kOperators) {
      if (!starts_with(at_, symbol)) continue;
      balance(symbol[0]);
      finish(TokenKind::op, at_ + symbol.size());
      return;
    }
    size_t next = at_;
    next_character(source_, next);
    fail_at(here(), "unexpected char {}", repr(std::string_view(source_).substr(at_, next - at_)));
  }

  void balance(char symbol) {
    static constexpr std::string_view kOpening = "([{";
    static constexpr std::string_view kClosing = ")]}";
    if (const size_t kind = kOpening.find(symbol); kind != std::string_view::npos)
      brackets_ += kClosing[kind];
    if (kClosing.find(symbol) == std::string_view::npos) return;
    if (brackets_.empty()) fail_at(here(), "unexpected '{}'", symbol);
    if (brackets_.back() != symbol)
      fail_at(here(), "unexpected '{}', expected '{}'", symbol, brackets_.back());
    brackets_.pop_back();
  }

  const std::string source_;
  size_t at_ = 0;
  size_t counted_ = 0;  // position_ is that of this offset
  Position position_{1, 1};
  bool line_starting_ = true;
  std::string brackets_;  // the closing ones that are still to come
  std::vector<Token> tokens_;
};

}  // namespace

std::vector<Token> tokenize(std::string_view source) {
  return Lexer(source).run();
}

}  // namespace kv8::text::jinja
