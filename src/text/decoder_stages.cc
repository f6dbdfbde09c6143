#include "text/decoder_stages.h"

#include <optional>
#include <utility>

#include "text/byte_level.h"
#include "text/unicode.h"

namespace kv8::text {

namespace {

class ByteLevelStage final : public DecoderStage {
 public:
  Status push(Fragment fragment, TextBudget& /*budget*/, const Sink& sink) override {
    if (auto bytes = from_byte_alphabet(fragment.text)) {
      pending_ += *bytes;
    } else {
      pending_ += fragment.text;
    }
    return emit(false, sink);
  }
  Status flush(const Sink& sink) override { return emit(true, sink); }

 private:
  Status emit(bool at_end, const Sink& sink) {
    std::string out;
    size_t i = 0;
    while (i < pending_.size()) {
      const std::string_view rest = std::string_view(pending_).substr(i);
      const Utf8Unit unit = next_utf8(rest);
      if (unit.kind == Utf8Kind::incomplete && !at_end) break;
      out += unit.kind == Utf8Kind::character ? rest.substr(0, unit.length) : kReplacementUtf8;
      i += unit.length;
    }
    pending_.erase(0, i);
    if (out.empty()) return {};
    return sink({std::move(out), !std::exchange(started_, true)});
  }

  std::string pending_;
  bool started_ = false;
};

std::optional<char> byte_of_token(std::string_view token) {
  if (token.size() != 6 || !token.starts_with("<0x") || token[5] != '>') return std::nullopt;
  int value = 0;
  for (const char c : token.substr(3, 2)) {
    const int digit = c >= '0' && c <= '9'   ? c - '0'
                      : c >= 'A' && c <= 'F' ? c - 'A' + 10
                      : c >= 'a' && c <= 'f' ? c - 'a' + 10
                                             : -1;
    if (digit < 0) return std::nullopt;
    value = value * 16 + digit;
  }
  return static_cast<char>(value);
}

class ByteFallbackStage final : public DecoderStage {
 public:
  Status push(Fragment fragment, TextBudget& /*budget*/, const Sink& sink) override {
    if (const auto byte = byte_of_token(fragment.text)) {
      bytes_ += *byte;
      return {};
    }
    KV8_RETURN_IF_ERROR(flush(sink));
    return sink(std::move(fragment));
  }
  Status flush(const Sink& sink) override {
    if (bytes_.empty()) return {};
    const std::string bytes = std::move(bytes_);
    bytes_.clear();
    if (is_valid_utf8(bytes)) return sink({bytes, true});
    for (size_t i = 0; i < bytes.size(); ++i)
      KV8_RETURN_IF_ERROR(sink({std::string(kReplacementUtf8), true}));
    return {};
  }

 private:
  std::string bytes_;
};

class FuseStage final : public DecoderStage {
 public:
  Status push(Fragment fragment, TextBudget& /*budget*/, const Sink& sink) override {
    fragment.starts_token = !started_;
    started_ = true;
    return sink(std::move(fragment));
  }
  Status flush(const Sink& /*sink*/) override { return {}; }

 private:
  bool started_ = false;
};

class HoldStage final : public DecoderStage {
 public:
  Status push(Fragment fragment, TextBudget& /*budget*/, const Sink& /*sink*/) override {
    text_ += fragment.text;
    return {};
  }
  Status flush(const Sink& sink) override { return sink({std::move(text_), true}); }

 private:
  std::string text_;
};

class ReplaceStage final : public DecoderStage {
 public:
  ReplaceStage(std::shared_ptr<const Pattern> pattern, std::string content)
      : pattern_(std::move(pattern)), content_(std::move(content)) {}

  Status push(Fragment fragment, TextBudget& budget, const Sink& sink) override {
    KV8_RETURN_IF_ERROR(pattern_->replace(fragment.text, content_, budget));
    return sink(std::move(fragment));
  }
  Status flush(const Sink& /*sink*/) override { return {}; }

 private:
  std::shared_ptr<const Pattern> pattern_;
  std::string content_;
};

class StripStage final : public DecoderStage {
 public:
  StripStage(std::string character, size_t start, size_t stop)
      : character_(std::move(character)), start_(start), stop_(stop) {}

  Status push(Fragment fragment, TextBudget& /*budget*/, const Sink& sink) override {
    if (fragment.starts_token) {
      waiting_ = 0;
      to_strip_ = start_;
    }
    std::string_view rest = fragment.text;
    while (to_strip_ > 0 && !rest.empty()) {
      if (rest.starts_with(character_)) {
        rest.remove_prefix(character_.size());
        --to_strip_;
      } else {
        to_strip_ = 0;
      }
    }
    // Up to stop_ of the character at the end may have to go: they wait.
    size_t kept = rest.size();
    size_t waiting = 0;
    while (waiting < stop_ && rest.substr(0, kept).ends_with(character_)) {
      kept -= character_.size();
      ++waiting;
    }
    std::string out;
    size_t released = kept > 0 ? waiting_ : waiting_ + waiting > stop_ ? waiting_ + waiting - stop_ : 0;
    if (released > waiting_) released = waiting_;
    for (size_t i = 0; i < released; ++i) out += character_;
    out += rest.substr(0, kept);
    waiting_ = waiting_ - released + waiting;
    return sink({std::move(out), fragment.starts_token});
  }
  Status flush(const Sink& /*sink*/) override {
    waiting_ = 0;
    return {};
  }

 private:
  std::string character_;
  size_t start_;
  size_t stop_;
  size_t to_strip_ = 0;
  size_t waiting_ = 0;
};

class MetaspaceStage final : public DecoderStage {
 public:
  MetaspaceStage(std::string replacement, bool drop_first)
      : replacement_(std::move(replacement)), drop_first_(drop_first) {}

  Status push(Fragment fragment, TextBudget& budget, const Sink& sink) override {
    tokens_ += fragment.starts_token ? 1 : 0;
    KV8_RETURN_IF_ERROR(
        replace_all(fragment.text, replacement_, drop_first_ && tokens_ <= 1 ? "" : " ", budget));
    return sink(std::move(fragment));
  }
  Status flush(const Sink& /*sink*/) override { return {}; }

 private:
  std::string replacement_;
  bool drop_first_;
  size_t tokens_ = 0;
};

class JoinStage final : public DecoderStage {
 public:
  Status push(Fragment fragment, TextBudget& /*budget*/, const Sink& sink) override {
    if (fragment.starts_token && started_) KV8_RETURN_IF_ERROR(sink({" ", false}));
    started_ = true;
    return sink(std::move(fragment));
  }
  Status flush(const Sink& /*sink*/) override { return {}; }

 private:
  bool started_ = false;
};

}  // namespace

std::unique_ptr<DecoderStage> byte_level_stage() {
  return std::make_unique<ByteLevelStage>();
}
std::unique_ptr<DecoderStage> byte_fallback_stage() {
  return std::make_unique<ByteFallbackStage>();
}
std::unique_ptr<DecoderStage> fuse_stage() {
  return std::make_unique<FuseStage>();
}
std::unique_ptr<DecoderStage> hold_stage() {
  return std::make_unique<HoldStage>();
}
std::unique_ptr<DecoderStage> replace_stage(std::shared_ptr<const Pattern> pattern, std::string content) {
  return std::make_unique<ReplaceStage>(std::move(pattern), std::move(content));
}
std::unique_ptr<DecoderStage> strip_stage(std::string character, size_t start, size_t stop) {
  return std::make_unique<StripStage>(std::move(character), start, stop);
}
std::unique_ptr<DecoderStage> metaspace_stage(std::string replacement, bool drop_first) {
  return std::make_unique<MetaspaceStage>(std::move(replacement), drop_first);
}
std::unique_ptr<DecoderStage> join_stage() {
  return std::make_unique<JoinStage>();
}

}  // namespace kv8::text
