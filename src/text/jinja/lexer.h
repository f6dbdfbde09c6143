// The source of a template as tokens, with Jinja2's rules for whitespace under trim_blocks and lstrip_blocks:
// the newline after a block tag or comment goes, and so does the indentation before one that begins its line;
// '-' takes all whitespace on its side, '+' keeps it. One newline at the end of the source goes too.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "text/jinja/failure.h"

namespace kv8::text::jinja {

enum class TokenKind : uint8_t {
  text,         // outside of all tags
  print_begin,  // {{
  print_end,
  block_begin,  // {%
  block_end,
  name,
  string,  // without quotes, escapes replaced
  integer,
  floating,
  op,
  end,
};

struct Token {
  TokenKind kind;
  std::string text;  // as written, except for strings; digits without '_'
  Position at;

  bool is(TokenKind wanted, std::string_view wanted_text) const {
    return kind == wanted && text == wanted_text;
  }
  bool is_op(std::string_view symbol) const { return is(TokenKind::op, symbol); }
  bool is_name(std::string_view name) const { return is(TokenKind::name, name); }
};

std::vector<Token> tokenize(std::string_view source);  // ends with a token of kind end; throws Failure

}  // namespace kv8::text::jinja
