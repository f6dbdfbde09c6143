#include "text/tokenizer_json_reader.h"

#include <limits>

namespace kv8::text {

namespace {

// nlohmann's event interface. Where we are is known from the depth and the keys on the way: only
// model.vocab and model.merges are of their own kind, and everything else is built as a tree.
class Reader {
 public:
  using number_integer_t = Json::number_integer_t;
  using number_unsigned_t = Json::number_unsigned_t;
  using number_float_t = Json::number_float_t;
  using string_t = Json::string_t;
  using binary_t = Json::binary_t;

  explicit Reader(std::string_view source) : source_(source) {}

  TokenizerJson take() { return std::move(result_); }
  const std::string& error() const { return error_; }

  // Events (the names are the interface's).
  bool null() { return scalar(nullptr); }
  bool boolean(bool value) { return scalar(value); }
  bool number_integer(number_integer_t value) {
    return state_ == State::vocabulary ? fail("model.vocab", "an id below 0") : scalar(value);
  }
  bool number_unsigned(number_unsigned_t value) {
    if (state_ != State::vocabulary) return scalar(value);
    if (value >= static_cast<number_unsigned_t>(std::numeric_limits<int32_t>::max())) {
      return fail("model.vocab", fmt::format("id {} is too large", value));
    }
    result_.vocabulary.back().id = static_cast<int32_t>(value);
    return true;
  }
  bool number_float(number_float_t value, const string_t& /*text*/) { return scalar(value); }
  bool binary(binary_t& /*value*/) { return fail("top level", "binary data"); }

  bool string(string_t& value) {
    if (state_ == State::merges) return merge_line(value);
    if (state_ == State::merge_pair) return merge_part(value);
    return scalar(std::move(value));
  }

  bool start_object(size_t /*elements*/) {
    if (state_ == State::tree && at_model_field("vocab")) {
      state_ = State::vocabulary;
      return true;
    }
    return state_ == State::tree ? open(Json::object()) : unexpected("an object");
  }
  bool key(string_t& name) {
    if (state_ != State::vocabulary) {
      key_ = std::move(name);
      return true;
    }
    std::string& texts = result_.vocabulary_texts;
    if (!fits(texts, name.size())) return false;
    result_.vocabulary.push_back(
        {static_cast<uint32_t>(texts.size()), static_cast<uint32_t>(name.size()), 0});
    texts += name;
    return true;
  }
  bool end_object() {
    if (state_ == State::vocabulary) {
      state_ = State::tree;
      return true;
    }
    stack_.pop_back();
    return true;
  }

  bool start_array(size_t /*elements*/) {
    if (state_ == State::tree && at_model_field("merges")) {
      state_ = State::merges;
      return true;
    }
    if (state_ == State::merges) {
      state_ = State::merge_pair;
      parts_ = 0;
      return true;
    }
    return state_ == State::tree ? open(Json::array()) : unexpected("a list");
  }
  bool end_array() {
    if (state_ == State::merge_pair) {
      state_ = State::merges;
      return parts_ == 2 || fail("model.merges", fmt::format("entry {} has {} parts, expected 2",
                                                             result_.merges.size(), parts_));
    }
    if (state_ == State::merges) {
      state_ = State::tree;
      return true;
    }
    stack_.pop_back();
    return true;
  }

  bool parse_error(size_t /*position*/, const std::string& /*token*/,
                   const nlohmann::detail::exception& error) {
    error_ = fmt::format("{}: not valid JSON: {}", source_, error.what());
    return false;
  }

 private:
  enum class State { tree, vocabulary, merges, merge_pair };

  bool fail(std::string_view field, std::string_view what) {
    error_ = fmt::format("{}: {}: {}", source_, field, what);
    return false;
  }
  bool unexpected(std::string_view what) {
    return fail(state_ == State::vocabulary ? "model.vocab" : "model.merges",
                fmt::format("unexpectedly {}", what));
  }

  // Lengths and offsets are 32 bits.
  bool fits(const std::string& texts, size_t bytes) {
    return texts.size() + bytes < std::numeric_limits<uint32_t>::max() ||
           fail("model", "more than 4 GB of text");
  }

  // Whether the value that comes is the field `name` of the top level's "model".
  bool at_model_field(std::string_view name) const {
    if (stack_.size() != 2 || key_ != name || !stack_[0]->is_object() || !stack_[1]->is_object())
      return false;
    const auto model = stack_[0]->find("model");
    return model != stack_[0]->end() && &*model == stack_[1];
  }

  Json* put(Json&& value) {
    if (stack_.empty()) {
      result_.root = std::move(value);
      return &result_.root;
    }
    Json& parent = *stack_.back();
    if (parent.is_array()) {
      parent.push_back(std::move(value));
      return &parent.back();
    }
    Json& slot = parent[key_];
    slot = std::move(value);
    return &slot;
  }
  bool scalar(Json&& value) {
    if (state_ != State::tree) return unexpected(value.type_name());
    put(std::move(value));
    return true;
  }
  bool open(Json&& value) {
    if (stack_.size() >= static_cast<size_t>(kMaxJsonDepth)) {
      return fail("top level", fmt::format("nested deeper than {} levels", kMaxJsonDepth));
    }
    // A parent grows only while it is the innermost, so pointers to those further out stay good.
    stack_.push_back(put(std::move(value)));
    return true;
  }

  bool merge_line(const std::string& line) {
    if (line.starts_with("#version")) return true;
    const size_t space = line.find(' ');
    if (space == std::string::npos || line.find(' ', space + 1) != std::string::npos) {
      return fail("model.merges", fmt::format("entry {} is \"{}\", expected two texts with a space between",
                                              result_.merges.size(), line.substr(0, 40)));
    }
    std::string& texts = result_.merge_texts;
    if (!fits(texts, line.size())) return false;
    result_.merges.push_back({static_cast<uint32_t>(texts.size()), static_cast<uint32_t>(space),
                              static_cast<uint32_t>(line.size() - space - 1)});
    texts.append(line, 0, space);
    texts.append(line, space + 1);
    return true;
  }
  bool merge_part(const std::string& part) {
    std::string& texts = result_.merge_texts;
    if (!fits(texts, part.size())) return false;
    const auto length = static_cast<uint32_t>(part.size());
    if (parts_ == 0) {
      result_.merges.push_back({static_cast<uint32_t>(texts.size()), length, 0});
    } else {
      result_.merges.back().right_length = length;
    }
    ++parts_;
    texts += part;
    return true;
  }

  std::string source_;
  std::string error_;
  TokenizerJson result_;
  State state_ = State::tree;
  std::vector<Json*> stack_;
  std::string key_;
  size_t parts_ = 0;
};

}  // namespace

Expected<TokenizerJson> read_tokenizer_json(std::string_view json, std::string_view source) {
  Reader reader(source);
  if (!Json::sax_parse(json.begin(), json.end(), &reader)) {
    return make_error(ErrorCode::corrupt_data, "{}", reader.error());
  }
  return reader.take();
}

}  // namespace kv8::text
