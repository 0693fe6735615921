#pragma once
// Safetensors: 8 bytes little-endian header length, a JSON header {name: {dtype, shape, data_offsets}, "__metadata__": {...}},
// then the tensors back to back. Files are read as hostile: every length is checked before it is used.

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "io/element_type.h"
#include "io/file.h"

namespace millrace::io {

/// A named tensor in borrowed memory, row-major. From a file `data` may be misaligned for the type: copy, never
/// cast.
struct TensorView {
    std::string name;
    ElementType type = ElementType::kF32;
    std::vector<std::int64_t> shape;
    const std::byte* data = nullptr;
    std::size_t bytes = 0;
};

/// `values` must have as many elements as `shape` says.
TensorView float_tensor(std::string name, std::vector<std::int64_t> shape, std::span<const float> values);

using Metadata = std::map<std::string, std::string>;

/// Pours a safetensors file into `sink` without a second copy of the tensors. The data section starts 64-byte aligned; tensors
/// keep their order. Refuses duplicate names, the name `__metadata__` and sizes that do not match type and shape. Gives the bytes
/// of the file.
Result<std::uint64_t> write_safetensors(ByteSink& sink, std::span<const TensorView> tensors, const Metadata& metadata,
                                        const Path& place);

/// A parsed file that owns its bytes. Movable; the views point into it.
class SafetensorsFile {
public:
    /// Reads and checks the whole file; an error names the file and the tensor.
    static Result<SafetensorsFile> open(const Path& path);
    /// The same for bytes already in memory; `place` names them in errors.
    static Result<SafetensorsFile> parse(std::vector<std::byte> bytes, const Path& place);

    /// In the order of the data section.
    [[nodiscard]] const std::vector<TensorView>& tensors() const { return tensors_; }
    [[nodiscard]] const Metadata& metadata() const { return metadata_; }
    [[nodiscard]] const Path& place() const { return place_; }
    /// The raw bytes of the file, header included.
    [[nodiscard]] Bytes bytes() const { return bytes_; }

    [[nodiscard]] const TensorView* find(std::string_view name) const;
    /// Copies a tensor of exactly this shape into `into`, widening F16, BF16 and narrowing F64. Errors name file, tensor and
    /// shapes.
    Status copy_floats(std::string_view name, std::span<const std::int64_t> shape, std::span<float> into) const;

private:
    std::vector<std::byte> bytes_;
    std::vector<TensorView> tensors_;
    std::map<std::string, std::size_t, std::less<>> index_;
    Metadata metadata_;
    Path place_;
};

}  // namespace millrace::io
