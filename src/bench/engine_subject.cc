#include "bench/engine_subject.h"

#include <algorithm>
#include <optional>

namespace kv8::bench {

namespace {

class EngineSubject : public Subject {
 public:
  EngineSubject(std::unique_ptr<engine::Engine> engine, SubjectInfo info)
      : engine_(std::move(engine)), info_(std::move(info)) {}

  const SubjectInfo& info() const override { return info_; }

  Status prefill(std::span<const int32_t> prompt, const Progress& progress) override {
    sequence_.reset();
    sequence_.emplace(engine_->new_sequence());
    KV8_ASSIGN_OR_RETURN(const auto logits, engine_->append(*sequence_, prompt, progress));
    draw(logits);
    return {};
  }

  Status step() override {
    KV8_ASSIGN_OR_RETURN(const auto logits, engine_->append(*sequence_, {&token_, 1}));
    draw(logits);
    return {};
  }

  void finish() override { sequence_.reset(); }

 private:
  void draw(std::span<const float> logits) {
    token_ = static_cast<int32_t>(std::ranges::max_element(logits) - logits.begin());
  }

  std::unique_ptr<engine::Engine> engine_;
  SubjectInfo info_;
  std::optional<engine::Sequence> sequence_;
  int32_t token_ = 0;
};

}  // namespace

std::unique_ptr<Subject> engine_subject(std::unique_ptr<engine::Engine> engine, std::string name,
                                        std::string description) {
  const kv_cache::CachePlan& plan = engine->cache_plan();
  SubjectInfo info;
  info.name = std::move(name);
  info.description = std::move(description);
  info.token_bytes = plan.token_bytes();
  info.window_bytes = plan.window_bytes();
  info.eight_bit = std::ranges::any_of(
      plan.layers, [](const auto& layer) { return layer.format == kv_cache::KvFormat::fp8; });
  return std::make_unique<EngineSubject>(std::move(engine), std::move(info));
}

}  // namespace kv8::bench
