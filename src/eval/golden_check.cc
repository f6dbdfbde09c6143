#include "eval/golden_check.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <span>
#include <vector>

#include "formats/safetensors.h"

namespace kv8::eval {

namespace {

constexpr const char* kGreedyTensor = "logits";  // the logits that greedy and margin come from

struct Golden {
  std::vector<int32_t> input_ids;
  std::vector<float> logits;  // [input_ids, vocab]
  std::vector<int32_t> greedy;
  std::vector<float> margin;
};

// A tensor's numbers, copied: a file may place them at any alignment.
template <class T>
Expected<std::vector<T>> read(const formats::Safetensors& file, const std::string& path,
                              const std::string& name, DType dtype, int rank) {
  const TensorView* tensor = file.find(name);
  if (tensor == nullptr) return make_error(ErrorCode::not_found, "{}: no tensor {}", path, name);
  if (tensor->dtype != dtype || tensor->shape.rank() != rank) {
    return make_error(ErrorCode::corrupt_data, "{}: tensor {}: {} {}, expected {} of rank {}", path, name,
                      to_string(tensor->dtype), tensor->shape.to_string(), to_string(dtype), rank);
  }
  std::vector<T> values(tensor->bytes / sizeof(T));
  std::memcpy(values.data(), tensor->data, tensor->bytes);
  return values;
}

Expected<Golden> read_golden(const std::string& path, const std::string& logits_tensor, int64_t vocab) {
  KV8_ASSIGN_OR_RETURN(const formats::Safetensors file, formats::Safetensors::open(path));
  Golden golden;
  KV8_ASSIGN_OR_RETURN(golden.input_ids, read<int32_t>(file, path, "input_ids", DType::i32, 1));
  KV8_ASSIGN_OR_RETURN(golden.logits, read<float>(file, path, logits_tensor, DType::f32, 2));
  KV8_ASSIGN_OR_RETURN(golden.greedy, read<int32_t>(file, path, "greedy", DType::i32, 1));
  KV8_ASSIGN_OR_RETURN(golden.margin, read<float>(file, path, "margin", DType::f32, 1));
  if (golden.input_ids.empty() ||
      golden.logits.size() != golden.input_ids.size() * static_cast<size_t>(vocab)) {
    return make_error(ErrorCode::corrupt_data,
                      "{}: tensor {}: {} numbers, expected {} positions of {} (the model's vocabulary)", path,
                      logits_tensor, golden.logits.size(), golden.input_ids.size(), vocab);
  }
  if (golden.greedy.size() != golden.margin.size()) {
    return make_error(ErrorCode::corrupt_data, "{}: {} greedy tokens, but {} margins", path,
                      golden.greedy.size(), golden.margin.size());
  }
  return golden;
}

double standard_deviation(std::span<const float> values) {
  double sum = 0;
  for (const float value : values) sum += value;
  const double mean = sum / static_cast<double>(values.size());
  double squares = 0;
  for (const float value : values) squares += (value - mean) * (value - mean);
  return std::sqrt(squares / static_cast<double>(values.size()));
}

double log_sum_exp(std::span<const float> logits) {
  const double best = *std::ranges::max_element(logits);
  double sum = 0;
  for (const float logit : logits) sum += std::exp(logit - best);
  return best + std::log(sum);
}

double kl_divergence(std::span<const float> reference, std::span<const float> logits) {
  const double reference_norm = log_sum_exp(reference);
  const double norm = log_sum_exp(logits);
  double kl = 0;
  for (size_t i = 0; i < logits.size(); ++i) {
    const double log_p = reference[i] - reference_norm;
    kl += std::exp(log_p) * (log_p - (logits[i] - norm));
  }
  return std::max(kl, 0.0);
}

int64_t best_token(std::span<const float> logits) {
  return std::ranges::max_element(logits) - logits.begin();
}

}  // namespace

GoldenBounds default_bounds(kv_cache::KvFormat cache) {
  if (cache == kv_cache::KvFormat::fp8) return {.logit_error = 5e-2, .rms_error = 1e-3, .margin = 0};
  return {};
}

Expected<GoldenReport> check_golden(engine::Engine& engine, const std::string& golden_file,
                                    const std::string& logits_tensor, const GoldenBounds& bounds) {
  const int64_t vocab = engine.config().vocab_size;
  KV8_ASSIGN_OR_RETURN(const Golden golden, read_golden(golden_file, logits_tensor, vocab));
  GoldenReport report;
  report.logits_tensor = logits_tensor;
  report.positions = static_cast<int64_t>(golden.input_ids.size());
  report.logit_deviation = standard_deviation(golden.logits);

  engine::Sequence sequence = engine.new_sequence();
  double squares = 0;
  int64_t agreeing = 0;
  int64_t next_token = 0;
  bool finite = true;
  const auto compare = [&](int64_t position, std::span<const float> logits) {
    const auto reference =
        std::span(golden.logits).subspan(static_cast<size_t>(position * vocab), static_cast<size_t>(vocab));
    for (size_t i = 0; i < logits.size(); ++i) {
      const double error = std::abs(static_cast<double>(logits[i]) - reference[i]) / report.logit_deviation;
      finite = finite && std::isfinite(error);
      squares += error * error;
      if (error > report.max_error) {
        report.max_error = error;
        report.worst_position = position;
      }
    }
    const double kl = kl_divergence(reference, logits);
    report.mean_kl += kl / static_cast<double>(report.positions);
    report.max_kl = std::max(report.max_kl, kl);
    next_token = best_token(logits);
    agreeing += next_token == best_token(reference) ? 1 : 0;
  };
  KV8_RETURN_IF_ERROR(engine.append_with_logits(sequence, golden.input_ids, compare));
  report.rms_error = std::sqrt(squares / static_cast<double>(golden.logits.size()));
  report.top1_agreement = static_cast<double>(agreeing) / static_cast<double>(report.positions);

  // Each step follows the golden prefix, so that one close call doesn't spoil the steps after it.
  const size_t steps = logits_tensor == kGreedyTensor ? golden.greedy.size() : 0;
  for (size_t step = 0; step < steps; ++step) {
    ++report.greedy_tokens;
    if (next_token == golden.greedy[step]) {
      ++report.greedy_agreeing;
    } else if (golden.margin[step] > bounds.margin) {
      ++report.greedy_failures;
    }
    if (step + 1 == steps) break;
    KV8_ASSIGN_OR_RETURN(const std::span<const float> logits,
                         engine.append(sequence, {&golden.greedy[step], 1}));
    next_token = best_token(logits);
  }
  report.passed = finite && report.max_error <= bounds.logit_error && report.rms_error <= bounds.rms_error &&
                  report.greedy_failures == 0;
  return report;
}

}  // namespace kv8::eval
