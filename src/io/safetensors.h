#pragma once
// Safetensors: 8 bytes little-endian header length, a JSON header {name: {dtype, shape, data_offsets}, "__metadata__": {...}},
// then the tensors back to back. Files are read as hostile: every length is checked before it is used.

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "io/element_type.h"
#include "io/file.h"

namespace millrace::io {

/// A named tensor in borrowed memory, row-major. From a file `data` may be misaligned for the type: copy, never
/// cast. Null where the bytes lie elsewhere: in a file (SafetensorsFile::read) or where `pour` gets them.
struct TensorView {
    std::string name;
    ElementType type = ElementType::kF32;
    std::vector<std::int64_t> shape;
    const std::byte* data = nullptr;
    std::size_t bytes = 0;
    std::function<Status(ByteSink&)> pour = {};  ///< writes all bytes, piece by piece
};

/// `values` must have as many elements as `shape` says.
TensorView float_tensor(std::string name, std::vector<std::int64_t> shape, std::span<const float> values);

using Metadata = std::map<std::string, std::string>;

/// Pours a safetensors file into `sink` without a second copy of the tensors. The data section starts 64-byte aligned; tensors
/// keep their order. Refuses duplicate names, the name `__metadata__` and sizes that do not match type and shape. Gives the bytes
/// of the file.
Result<std::uint64_t> write_safetensors(ByteSink& sink, std::span<const TensorView> tensors, const Metadata& metadata,
                                        const Path& place);

/// A parsed file that owns its bytes, or holds the file open and reads them when they are asked for. Movable; the views point
/// into it.
class SafetensorsFile {
public:
    /// Reads and checks the whole file; an error names the file and the tensor.
    static Result<SafetensorsFile> open(const Path& path);
    /// The same for bytes already in memory; `place` names them in errors.
    static Result<SafetensorsFile> parse(std::vector<std::byte> bytes, const Path& place);
    /// Reads and checks the header alone: tensors stay in the file, which may be unlinked meanwhile.
    static Result<SafetensorsFile> open_in_place(RegularFile file, const Path& place);

    /// In the order of the data section.
    [[nodiscard]] const std::vector<TensorView>& tensors() const { return tensors_; }
    [[nodiscard]] const Metadata& metadata() const { return metadata_; }
    [[nodiscard]] const Path& place() const { return place_; }
    /// Adds the raw bytes of the file, header included.
    Status add_to(Checksum64& sum) const;

    [[nodiscard]] const TensorView* find(std::string_view name) const;
    /// Copies elements [first, first + into.size()) of a tensor of exactly this shape into `into`, widening F16, BF16 and
    /// narrowing F64. Errors name file, tensor and shapes.
    Status copy_floats(std::string_view name, std::span<const std::int64_t> shape, std::span<float> into,
                       std::size_t first = 0) const;
    /// All bytes of a tensor of this file.
    [[nodiscard]] Result<std::vector<std::byte>> read(const TensorView& tensor) const;
    /// The same of those from `offset` on that `into` has room for. From several threads at once.
    Status read(const TensorView& tensor, std::uint64_t offset, std::span<std::byte> into) const;

private:
    /// Of a file of `size` bytes that begins with `head`: its length and its header. The tensors have no data yet.
    static Result<SafetensorsFile> parse_head(Bytes head, std::uint64_t size, const Path& place);
    /// Bytes of a tensor; `memory` holds them where they come from the file.
    Result<Bytes> bytes_of_tensor(const TensorView& tensor, std::size_t offset, std::size_t count,
                                  std::vector<std::byte>& memory) const;

    std::vector<std::byte> bytes_;  ///< empty: they stay in file_
    std::optional<RegularFile> file_;
    std::vector<std::uint64_t> offsets_;  ///< of the tensors, from the beginning of the file
    std::vector<TensorView> tensors_;
    std::map<std::string, std::size_t, std::less<>> index_;  ///< into tensors_
    Metadata metadata_;
    Path place_;
};

}  // namespace millrace::io
