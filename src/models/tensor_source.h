// Hands the tensors of a checkpoint to a backend, by name, checked, and remembers which: what nobody asked
// for is an error in the end.
#pragma once

#include <cstdint>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <string_view>

#include "core/error.h"
#include "core/number_range.h"
#include "formats/checkpoint.h"
#include "models/leftovers.h"
#include "ops/ops.h"

namespace kv8::models {

// What elements of small tensors may be; each is looked at. Large matrices aren't: a number in them that
// isn't finite shows in the logits.
constexpr NumberRange kVectorRange = {-1e9, 1e9};   // norm weights, biases, sinks
constexpr NumberRange kScaleRange = {1e-30, 1e30};  // of FP8 weights
constexpr NumberRange kDivisorRange = {1e-3, 1e6};  // of RoPE's frequencies

class TensorSource {
 public:
  // Both must outlive this and every view that it hands out.
  TensorSource(const formats::Checkpoint& checkpoint, ops::Ops& ops) : checkpoint_(checkpoint), ops_(ops) {}

  // Whether the checkpoint has it, be it of a type that kv8 reads or not.
  bool has(std::string_view name) const { return checkpoint_.has(name); }

  // Errors name the file and the tensor: not_found, unsupported (its type), corrupt_data (its shape).
  Expected<TensorView> get(const std::string& name, const Shape& shape);

  // A vector [size] of a float type whose elements all lie in `range`.
  Expected<TensorView> vector(const std::string& name, int64_t size, const NumberRange& range = kVectorRange);

  // name.weight [rows, cols], with name.bias [rows] where has_bias says so, and, where the weight is FP8, its
  // scale: name.weight_scale or name.weight_scale_inv, of a shape that ops::MatrixPart names. An FP8 weight
  // without a scale is an error that names what lies beside it.
  Expected<ops::MatrixPart> part(const std::string& name, int64_t rows, int64_t cols, bool has_bias);

  Expected<std::unique_ptr<ops::Matrix>> matrix(const std::string& name, int64_t rows, int64_t cols,
                                                bool has_bias);

  // prefix + suffix + ".weight" [size], a vector. An empty suffix gives null: the family has no such norm.
  Expected<std::unique_ptr<ops::Vector>> norm(const std::string& prefix, std::string_view suffix,
                                              int64_t size, float offset);

  ops::Ops& ops() { return ops_; }

  // For what is there and isn't used by intent: all tensors whose names begin so.
  void ignore(std::string_view beginning);

  // corrupt_data if the checkpoint holds tensors that nobody asked for, were told to ignore or that are
  // leftovers (models/leftovers.h).
  Status refuse_unread(std::span<const Leftover> family) const;

 private:
  Expected<TensorView> scale_of(const std::string& name, int64_t rows, int64_t cols);
  std::string source() const { return checkpoint_.path().string(); }

  const formats::Checkpoint& checkpoint_;
  ops::Ops& ops_;
  std::set<std::string, std::less<>> used_;
};

}  // namespace kv8::models
