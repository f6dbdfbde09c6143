#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <set>
#include <system_error>

#include <fcntl.h>
#include <unistd.h>

#include "core/json.h"
#include "formats/safetensors.h"

namespace kv8::formats {

namespace {

constexpr size_t kHeaderAlignment = 8;

// Never throws: what isn't UTF-8 is replaced.
std::string to_json(const Json& value) {
  return value.dump(-1, ' ', false, Json::error_handler_t::replace);
}

// The order of the data: larger elements first, so that every tensor is aligned to its element's size.
std::vector<const NamedTensor*> data_order(std::span<const NamedTensor> tensors) {
  std::vector<const NamedTensor*> order;
  for (const NamedTensor& tensor : tensors) order.push_back(&tensor);
  std::ranges::sort(order, [](const NamedTensor* a, const NamedTensor* b) {
    const int a_bytes = dtype_info(a->view.dtype).block_bytes;
    const int b_bytes = dtype_info(b->view.dtype).block_bytes;
    return a_bytes != b_bytes ? a_bytes > b_bytes : a->name < b->name;
  });
  return order;
}

Expected<std::string> make_header(const std::vector<const NamedTensor*>& order,
                                  const std::map<std::string, std::string>& metadata,
                                  const std::string& source) {
  // Text is put together rather than a document, whose ordered form looks up keys one by one.
  std::string header = "{";
  if (!metadata.empty()) header += fmt::format(R"("__metadata__":{})", to_json(metadata));
  std::set<std::string_view> seen;
  size_t offset = 0;
  for (const NamedTensor* tensor : order) {
    const TensorView& view = tensor->view;
    const std::string_view dtype = safetensors_dtype_name(view.dtype);
    if (dtype.empty()) {
      return make_error(ErrorCode::invalid_argument, "{}: {}: safetensors cannot hold {}", source,
                        tensor->name, to_string(view.dtype));
    }
    if (tensor->name == "__metadata__" || !seen.insert(tensor->name).second) {
      return make_error(ErrorCode::invalid_argument, "{}: the tensor name '{}' is reserved or used twice",
                        source, tensor->name);
    }
    const Json entry = {{"dtype", dtype},
                        {"shape", std::vector<int64_t>(view.shape.dims().begin(), view.shape.dims().end())},
                        {"data_offsets", {offset, offset + view.bytes}}};
    if (header.size() > 1) header += ',';
    header += fmt::format("{}:{}", to_json(tensor->name), to_json(entry));
    offset += view.bytes;
  }
  header += '}';
  header.resize((header.size() + kHeaderAlignment - 1) / kHeaderAlignment * kHeaderAlignment, ' ');
  return header;
}

// A new file that takes its final name only once it is complete.
class AtomicFile {
 public:
  explicit AtomicFile(const std::filesystem::path& path)
      : path_(path), temporary_(fmt::format("{}.{}.partial", path.string(), ::getpid())) {
    fd_ = ::open(temporary_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  }
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;
  ~AtomicFile() {
    if (fd_ < 0) return;
    ::close(fd_);
    ::unlink(temporary_.c_str());
  }

  Status write(const void* data, size_t bytes) {
    const auto* at = static_cast<const char*>(data);
    while (fd_ >= 0 && bytes > 0) {
      const ssize_t written = ::write(fd_, at, bytes);
      if (written < 0 && errno == EINTR) continue;
      if (written < 0) return failed("write");
      at += written;
      bytes -= static_cast<size_t>(written);
    }
    return fd_ >= 0 ? Status() : failed("create");
  }

  Status commit() {
    if (fd_ < 0) return failed("create");
    if (::fsync(fd_) != 0 || ::rename(temporary_.c_str(), path_.c_str()) != 0) return failed("write");
    ::close(std::exchange(fd_, -1));
    return {};
  }

 private:
  Status failed(std::string_view action) const {
    return make_error(ErrorCode::io, "{}: cannot {}: {}", path_.string(), action, std::strerror(errno));
  }

  std::filesystem::path path_;
  std::string temporary_;
  int fd_ = -1;
};

}  // namespace

Status write_safetensors(const std::filesystem::path& path, std::span<const NamedTensor> tensors,
                         const std::map<std::string, std::string>& metadata) {
  const auto order = data_order(tensors);
  KV8_ASSIGN_OR_RETURN(const std::string header, make_header(order, metadata, path.string()));
  AtomicFile file(path);
  const auto length = static_cast<uint64_t>(header.size());
  KV8_RETURN_IF_ERROR(file.write(&length, sizeof(length)));
  KV8_RETURN_IF_ERROR(file.write(header.data(), header.size()));
  for (const NamedTensor* tensor : order) {
    KV8_RETURN_IF_ERROR(file.write(tensor->view.data, tensor->view.bytes));
  }
  return file.commit();
}

}  // namespace kv8::formats
