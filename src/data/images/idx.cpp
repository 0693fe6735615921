#include "data/images/idx.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "io/byte_source.h"

namespace millrace::data {
namespace {

constexpr std::size_t kFileCap = std::size_t{4} << 30;
constexpr std::size_t kMaxDimensions = 3;
constexpr std::uint8_t kUnsignedByte = 0x08;

std::uint32_t big_endian(std::span<const std::byte> bytes) {
    std::uint32_t value = 0;
    for (const std::byte byte : bytes.first(4)) value = (value << 8) | static_cast<std::uint32_t>(byte);
    return value;
}

/// The product of the extents; nothing when it overflows.
bool volume(std::span<const std::uint32_t> shape, std::uint64_t& count) {
    count = 1;
    for (const std::uint32_t extent : shape)
        if (__builtin_mul_overflow(count, std::uint64_t{extent}, &count)) return false;
    return true;
}

}  // namespace

Result<IdxArray> parse_idx(std::span<const std::byte> bytes, const Path& place) {
    const std::string where = place.string();
    if (bytes.size() < 4) return Error{fmt::format("has {} bytes; an IDX file starts with 4: truncated", bytes.size()), where};
    if (bytes[0] != std::byte{0} || bytes[1] != std::byte{0})
        return Error{fmt::format("starts with magic 0x{:08x}; an IDX file starts with 0x0000", big_endian(bytes)), where};
    if (static_cast<std::uint8_t>(bytes[2]) != kUnsignedByte)
        return Error{
            fmt::format("holds values of type 0x{:02x}; only unsigned bytes (0x08) are read", static_cast<unsigned>(bytes[2])),
            where};
    const auto dimensions = static_cast<std::size_t>(bytes[3]);
    if (dimensions < 1 || dimensions > kMaxDimensions)
        return Error{fmt::format("claims {} dimensions; 1 to {} are read", dimensions, kMaxDimensions), where};
    const std::size_t header = 4 + 4 * dimensions;
    if (bytes.size() < header) return Error{fmt::format("ends inside its header of {} bytes: truncated", header), where};

    IdxArray array;
    for (std::size_t i = 0; i < dimensions; ++i) array.shape.push_back(big_endian(bytes.subspan(4 + 4 * i)));
    const std::span<const std::byte> values = bytes.subspan(header);
    std::uint64_t count = 0;
    if (!volume(array.shape, count) || count != values.size())
        return Error{
            fmt::format("the header says [{}] values but {} bytes follow it: {}", fmt::join(array.shape, " x "), values.size(),
                        count > values.size() ? "truncated, or the header is wrong" : "bytes left over, or the header is wrong"),
            where};
    array.values.resize(values.size());
    std::ranges::transform(values, array.values.begin(), [](std::byte byte) { return static_cast<std::uint8_t>(byte); });
    return array;
}

Result<IdxArray> read_idx(const Path& path) {
    std::error_code ignored;
    const Path packed = Path(path) += ".gz";
    const bool only_packed = !std::filesystem::exists(path, ignored) && std::filesystem::exists(packed, ignored);
    MILLRACE_LET(bytes, io::read_unpacked(only_packed ? packed : path, kFileCap));
    return parse_idx(bytes, path);
}

std::vector<std::byte> idx_header(std::span<const std::uint32_t> shape) {
    MILLRACE_ASSERT(!shape.empty() && shape.size() <= kMaxDimensions, "IDX arrays have one to three dimensions");
    std::vector<std::byte> header{std::byte{0}, std::byte{0}, std::byte{kUnsignedByte}, static_cast<std::byte>(shape.size())};
    for (const std::uint32_t extent : shape)
        for (const int shift : {24, 16, 8, 0}) header.push_back(static_cast<std::byte>(extent >> shift));
    return header;
}

Status write_idx(const Path& path, std::span<const std::uint32_t> shape, std::span<const std::uint8_t> values) {
    std::uint64_t count = 0;
    MILLRACE_ASSERT(volume(shape, count) && count == values.size(), path.string());
    const std::vector<std::byte> header = idx_header(shape);
    const auto fill = [&](io::FileWriter& writer) -> Status {
        MILLRACE_TRY(writer.write(header));
        return writer.write(std::as_bytes(values));
    };
    MILLRACE_TRY(io::write_atomically(path, fill));
    return base::ok();
}

}  // namespace millrace::data
