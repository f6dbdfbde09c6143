// Hands the tensors of a checkpoint to a backend, by name, with every shape checked; remembers which were
// used.
#pragma once

#include <cstdint>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "core/error.h"
#include "formats/checkpoint.h"
#include "ops/ops.h"

namespace kv8::models {

class TensorSource {
 public:
  // Both must outlive this.
  TensorSource(const formats::Checkpoint& checkpoint, ops::Ops& ops) : checkpoint_(checkpoint), ops_(ops) {}

  // Null if there is none.
  const TensorView* find(const std::string& name);
  // Errors name the file, the tensor, its shape and the shape asked for.
  Expected<TensorView> get(const std::string& name, const Shape& shape);

  // name + ".weight" [rows, cols], with the scales and the bias that lie beside it.
  Expected<ops::MatrixPart> part(const std::string& name, int64_t rows, int64_t cols);
  Expected<std::unique_ptr<ops::Matrix>> matrix(const std::string& name, int64_t rows, int64_t cols);
  // prefix + suffix + ".weight" [size]. An empty suffix gives null: the family has no such norm.
  Expected<std::unique_ptr<ops::Vector>> norm(const std::string& prefix, std::string_view suffix,
                                              int64_t size, float offset);

  ops::Ops& ops() { return ops_; }
  std::vector<std::string> unused() const;  // sorted

 private:
  const formats::Checkpoint& checkpoint_;
  ops::Ops& ops_;
  std::set<std::string> used_;
};

}  // namespace kv8::models
