#include "models/rope.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace kv8::models {

namespace {

// No real model comes near either: frequencies start at 1, and YaRN's magnitude is 1 + 0.1 ln(factor).
constexpr double kMaxFrequency = 1'000.0;
constexpr float kMaxMagnitude = 100.0F;

std::vector<double> base_frequencies(double theta, int rotary_dim) {
  std::vector<double> frequencies(static_cast<size_t>(rotary_dim / 2));
  for (size_t i = 0; i < frequencies.size(); ++i) {
    frequencies[i] = 1.0 / std::pow(theta, 2.0 * static_cast<double>(i) / rotary_dim);
  }
  return frequencies;
}

// Long wavelengths are slowed by `factor`, short ones stay, those between are blended.
Status scale_llama3(const JsonObject& parameters, std::vector<double>& frequencies) {
  KV8_ASSIGN_OR_RETURN(const double factor, parameters.number("factor"));
  KV8_ASSIGN_OR_RETURN(const double low, parameters.number("low_freq_factor"));
  KV8_ASSIGN_OR_RETURN(const double high, parameters.number("high_freq_factor"));
  KV8_ASSIGN_OR_RETURN(const int64_t original,
                       parameters.integer("original_max_position_embeddings", 1, int64_t{1} << 40));
  if (factor <= 0 || high <= low) {
    return make_error(ErrorCode::corrupt_data,
                      "{}: llama3 scaling needs factor > 0 and high_freq_factor > low_freq_factor",
                      parameters.field("factor"));
  }
  for (double& frequency : frequencies) {
    const double wavelength = 2.0 * std::numbers::pi / frequency;
    const double turns = static_cast<double>(original) / wavelength;
    const double smooth = std::clamp((turns - low) / (high - low), 0.0, 1.0);
    frequency = (1.0 - smooth) * frequency / factor + smooth * frequency;
  }
  return {};
}

double yarn_magnitude(double factor, double mscale) {
  return factor <= 1.0 ? 1.0 : 0.1 * mscale * std::log(factor) + 1.0;
}

Status scale_yarn(const JsonObject& parameters, double theta, int rotary_dim, int64_t max_positions,
                  std::vector<double>& frequencies, float& magnitude) {
  KV8_ASSIGN_OR_RETURN(const double factor, parameters.number("factor"));
  KV8_ASSIGN_OR_RETURN(const double beta_fast, parameters.number_or("beta_fast", 32.0));
  KV8_ASSIGN_OR_RETURN(const double beta_slow, parameters.number_or("beta_slow", 1.0));
  KV8_ASSIGN_OR_RETURN(const bool truncate, parameters.boolean_or("truncate", true));
  KV8_ASSIGN_OR_RETURN(const int64_t original, parameters.integer_or("original_max_position_embeddings",
                                                                     max_positions, 1, int64_t{1} << 40));
  if (factor <= 0 || beta_fast <= 0 || beta_slow <= 0 || theta <= 1) {
    return make_error(ErrorCode::corrupt_data,
                      "{}: YaRN needs factor, beta_fast and beta_slow > 0 and rope_theta > 1",
                      parameters.field("factor"));
  }
  KV8_ASSIGN_OR_RETURN(const double mscale, parameters.number_or("mscale", 0.0));
  KV8_ASSIGN_OR_RETURN(const double mscale_all_dim, parameters.number_or("mscale_all_dim", 0.0));
  const double inferred = mscale != 0 && mscale_all_dim != 0
                              ? yarn_magnitude(factor, mscale) / yarn_magnitude(factor, mscale_all_dim)
                              : yarn_magnitude(factor, 1.0);
  KV8_ASSIGN_OR_RETURN(const double attention_factor, parameters.number_or("attention_factor", inferred));
  magnitude = static_cast<float>(attention_factor);

  // The dim whose frequency makes `turns` full turns over the original length.
  const auto dim_of_turns = [&](double turns) {
    return rotary_dim * std::log(static_cast<double>(original) / (turns * 2.0 * std::numbers::pi)) /
           (2.0 * std::log(theta));
  };
  double low = dim_of_turns(beta_fast);
  double high = dim_of_turns(beta_slow);
  if (truncate) {
    low = std::floor(low);
    high = std::ceil(high);
  }
  low = std::max(low, 0.0);
  high = std::min(high, static_cast<double>(rotary_dim - 1));
  if (low == high) high += 0.001;  // keeps the ramp finite
  for (size_t i = 0; i < frequencies.size(); ++i) {
    const double ramp = std::clamp((static_cast<double>(i) - low) / (high - low), 0.0, 1.0);
    frequencies[i] = frequencies[i] / factor * ramp + frequencies[i] * (1.0 - ramp);
  }
  return {};
}

}  // namespace

Expected<RopeResult> make_rope(const JsonObject& parameters, int head_dim, double theta_fallback,
                               double partial_rotary_factor, int64_t max_positions) {
  KV8_ASSIGN_OR_RETURN(const double theta, parameters.number_or("rope_theta", theta_fallback));
  KV8_ASSIGN_OR_RETURN(const double partial,
                       parameters.number_or("partial_rotary_factor", partial_rotary_factor));
  KV8_ASSIGN_OR_RETURN(const std::string old_kind, parameters.string_or("type", "default"));
  KV8_ASSIGN_OR_RETURN(const std::string kind, parameters.string_or("rope_type", old_kind));
  if (theta <= 0)
    return make_error(ErrorCode::corrupt_data, "{}: expected a positive number",
                      parameters.field("rope_theta"));
  if (partial <= 0 || partial > 1) {
    return make_error(ErrorCode::corrupt_data, "{}: {} is outside of (0, 1]",
                      parameters.field("partial_rotary_factor"), partial);
  }
  const int rotary_dim = static_cast<int>(head_dim * partial) / 2 * 2;
  std::vector<double> frequencies = base_frequencies(theta, rotary_dim);
  RopeResult result;
  result.description = fmt::format("{}, theta {}", kind, theta);
  if (kind == "linear") {
    KV8_ASSIGN_OR_RETURN(const double factor, parameters.number("factor"));
    if (factor <= 0)
      return make_error(ErrorCode::corrupt_data, "{}: expected a positive number",
                        parameters.field("factor"));
    for (double& frequency : frequencies) frequency /= factor;
  } else if (kind == "llama3") {
    KV8_RETURN_IF_ERROR(scale_llama3(parameters, frequencies));
  } else if (kind == "yarn") {
    KV8_RETURN_IF_ERROR(
        scale_yarn(parameters, theta, rotary_dim, max_positions, frequencies, result.rope.magnitude));
  } else if (kind != "default") {
    return make_error(ErrorCode::unsupported, "{}: RoPE kind '{}': kv8 has default, linear, llama3 and yarn",
                      parameters.field("rope_type"), kind);
  }
  if (parameters.has("factor") && kind != "default") {
    KV8_ASSIGN_OR_RETURN(const double factor, parameters.number("factor"));
    result.description += fmt::format(", factor {}", factor);
  }
  for (const double frequency : frequencies) {
    if (frequency >= 0 && frequency <= kMaxFrequency) continue;
    return make_error(
        ErrorCode::corrupt_data,
        "{}: RoPE would turn by {} radians a token; theta or a factor of the scaling is damaged",
        parameters.field("rope_theta"), frequency);
  }
  if (!(result.rope.magnitude > 0 && result.rope.magnitude <= kMaxMagnitude)) {
    return make_error(ErrorCode::corrupt_data, "{}: {}; expected a number in (0, {}]",
                      parameters.field("attention_factor"), result.rope.magnitude, kMaxMagnitude);
  }
  result.rope.inverse_frequencies.assign(frequencies.begin(), frequencies.end());
  return result;
}

}  // namespace kv8::models
