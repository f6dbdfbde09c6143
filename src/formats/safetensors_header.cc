#include "formats/safetensors_header.h"

#include <limits>
#include <optional>

#include "core/json.h"

namespace kv8::formats {

namespace {

// Where in the document the next event lies. The structure is fixed, so its depth is too.
enum class Place {
  before,    // nothing read yet
  top,       // { here: names }
  metadata,  // {"__metadata__": { here
  tensor,    // {"name": { here: dtype, shape, data_offsets
  shape,     // {"name": {"shape": [ here
  offsets,   // {"name": {"data_offsets": [ here
  after,     // all read
};

constexpr std::string_view kMetadataKey = "__metadata__";

class HeaderReader : public nlohmann::json_sax<Json> {
 public:
  explicit HeaderReader(std::string_view source) : source_(source) {}

  SafetensorsHeader take_header() { return std::move(header_); }
  const std::string& error() const { return error_; }

  bool start_object(size_t /*elements*/) override {
    switch (place_) {
      case Place::before:
        place_ = Place::top;
        return true;
      case Place::top:
        if (key_ == kMetadataKey) {
          place_ = Place::metadata;
        } else {
          place_ = Place::tensor;
          header_.tensors.emplace_back().name = key_;
          fields_ = {};
        }
        return true;
      default:
        return unexpected("an object");
    }
  }

  bool end_object() override {
    switch (place_) {
      case Place::top:
        place_ = Place::after;
        return true;
      case Place::metadata:
        place_ = Place::top;
        return true;
      case Place::tensor:
        if (!fields_.dtype) return fail("dtype: missing");
        if (!fields_.shape) return fail("shape: missing");
        if (!fields_.offsets) return fail("data_offsets: missing");
        place_ = Place::top;
        return true;
      default:
        return unexpected("the end of an object");
    }
  }

  bool key(string_t& name) override {
    key_ = name;
    if (place_ != Place::tensor) return true;
    // Each of the three fields is there once, and there is no fourth.
    bool* seen = name == "dtype"          ? &fields_.dtype
                 : name == "shape"        ? &fields_.shape
                 : name == "data_offsets" ? &fields_.offsets
                                          : nullptr;
    if (seen == nullptr) return fail(fmt::format("'{}' is not a field of a tensor", name));
    if (*seen) return fail(fmt::format("{}: given twice", name));
    *seen = true;
    return true;
  }

  bool start_array(size_t /*elements*/) override {
    if (place_ == Place::tensor && key_ == "shape") {
      place_ = Place::shape;
      return true;
    }
    if (place_ == Place::tensor && key_ == "data_offsets") {
      place_ = Place::offsets;
      offsets_read_ = 0;
      return true;
    }
    return unexpected("a list");
  }

  bool end_array() override {
    if (place_ == Place::offsets && offsets_read_ != 2) return fail("data_offsets: two numbers are expected");
    place_ = Place::tensor;
    return true;
  }

  bool number_unsigned(number_unsigned_t value) override {
    if (place_ == Place::shape) {
      if (value > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) {
        return fail(fmt::format("shape: {} is more than 2^63", value));
      }
      tensor().shape.push_back(static_cast<int64_t>(value));
      return true;
    }
    if (place_ == Place::offsets) {
      if (offsets_read_ >= 2) return fail("data_offsets: two numbers are expected");
      (offsets_read_ == 0 ? tensor().begin : tensor().end) = value;
      ++offsets_read_;
      return true;
    }
    return unexpected(fmt::format("{}", value));
  }

  // The parser hands over as unsigned whatever isn't negative.
  bool number_integer(number_integer_t value) override { return unexpected(fmt::format("{}", value)); }
  bool number_float(number_float_t /*value*/, const string_t& text) override { return unexpected(text); }

  bool string(string_t& value) override {
    if (place_ == Place::metadata) {
      if (!header_.metadata.emplace(key_, value).second)
        return fail(fmt::format("'{}' is there twice", key_));
      return true;
    }
    if (place_ == Place::tensor && key_ == "dtype") {
      tensor().dtype = value;
      return true;
    }
    return unexpected("a string");
  }

  bool null() override { return unexpected("null"); }
  bool boolean(bool value) override { return unexpected(value ? "true" : "false"); }
  bool binary(binary_t& /*value*/) override { return unexpected("binary data"); }

  bool parse_error(size_t position, const std::string& /*token*/,
                   const nlohmann::detail::exception& /*exception*/) override {
    error_ = fmt::format("{}: the header is not valid JSON at byte {}", source_, position);
    return false;
  }

 private:
  struct Fields {
    bool dtype = false;
    bool shape = false;
    bool offsets = false;
  };

  TensorEntry& tensor() { return header_.tensors.back(); }

  bool fail(std::string_view what) {
    const bool in_tensor = place_ == Place::tensor || place_ == Place::shape || place_ == Place::offsets;
    const std::string_view where = in_tensor                   ? std::string_view(tensor().name)
                                   : place_ == Place::metadata ? kMetadataKey
                                                               : "header";
    error_ = fmt::format("{}: {}: {}", source_, where, what);
    return false;
  }

  bool unexpected(std::string_view found) {
    switch (place_) {
      case Place::before:
        return fail(fmt::format("expected an object, found {}", found));
      case Place::top:
        return fail(fmt::format("'{}': expected an object, found {}", key_, found));
      case Place::metadata:
        return fail(fmt::format("'{}': expected a string, found {}", key_, found));
      case Place::tensor: {
        const std::string_view expected = key_ == "dtype" ? "a string" : "a list of non-negative integers";
        return fail(fmt::format("{}: expected {}, found {}", key_, expected, found));
      }
      case Place::shape:
      case Place::offsets:
        return fail(fmt::format("{}: expected a non-negative integer, found {}", key_, found));
      case Place::after:
        break;
    }
    return fail(fmt::format("unexpected {}", found));
  }

  std::string source_;
  SafetensorsHeader header_;
  std::string error_;
  Place place_ = Place::before;
  std::string key_;
  Fields fields_;
  int offsets_read_ = 0;
};

}  // namespace

Expected<SafetensorsHeader> parse_safetensors_header(std::string_view json, std::string_view source) {
  HeaderReader reader(source);
  if (!Json::sax_parse(json.begin(), json.end(), &reader)) {
    return make_error(ErrorCode::corrupt_data, "{}", reader.error());
  }
  return reader.take_header();
}

}  // namespace kv8::formats
