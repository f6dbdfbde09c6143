// What the tokenizer tests share: gzip files, random text.
#pragma once

#include <filesystem>
#include <random>
#include <stdexcept>
#include <string>

#include <zlib.h>

#include "text/unicode.h"

namespace kv8::text::test {

// The whole of a gzip file (or of one that isn't compressed).
inline std::string read_gzip(const std::filesystem::path& path) {
  gzFile file = gzopen(path.c_str(), "rb");
  if (file == nullptr) throw std::runtime_error("can't open " + path.string());
  std::string text;
  std::string buffer(size_t{1} << 20, '\0');
  int count = 0;
  while ((count = gzread(file, buffer.data(), static_cast<unsigned>(buffer.size()))) > 0) {
    text.append(buffer, 0, static_cast<size_t>(count));
  }
  gzclose(file);
  if (count < 0) throw std::runtime_error("can't read " + path.string());
  return text;
}

// Characters of all kinds, ASCII and spaces more often than the rest; never a surrogate.
inline std::string random_text(std::mt19937& random, size_t characters) {
  std::string text;
  for (size_t i = 0; i < characters; ++i) {
    switch (random() % 8) {
      case 0:
        append_utf8(text, U" \n\t\r\u00A0\u3000"[random() % 6]);
        break;
      case 1:
        append_utf8(text, 0x80 + random() % 0x780);
        break;
      case 2:
        append_utf8(text, 0x800 + random() % 0xD000);
        break;
      case 3:
        append_utf8(text, 0x10000 + random() % 0x100000);
        break;
      case 4:
        append_utf8(text, U"'\u0301\u00ADſK0½"[random() % 7]);
        break;
      default:
        append_utf8(text, 0x20 + random() % 0x5F);
    }
  }
  return text;
}

}  // namespace kv8::text::test
