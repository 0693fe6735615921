#include "io/array_file.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <charconv>
#include <cstring>

#include "io/packing.h"

namespace millrace::io {
namespace {

constexpr std::size_t kMostArrayDimensions = 8, kMostMembers = 4096, kLongestHead = std::size_t{1} << 20;
constexpr std::uint32_t kEndMark = 0x06054b50, kEntryMark = 0x02014b50, kLocalMark = 0x04034b50;
constexpr std::uint32_t kStands64 = 0xffffffff;  ///< a size that stands elsewhere: ZIP64

template <class T>
T little(Bytes bytes, std::size_t at) {
    T value;
    std::memcpy(&value, bytes.data() + at, sizeof value);
    return value;
}

struct TypeWord {
    std::string_view word;
    ElementType type;
};
constexpr TypeWord kTypeWords[] = {{"|u1", ElementType::kU8},  {"<u1", ElementType::kU8},  {"|b1", ElementType::kU8},
                                   {"<i4", ElementType::kI32}, {"<i8", ElementType::kI64}, {"<f4", ElementType::kF32},
                                   {"<f8", ElementType::kF64}};

/// What follows `key` and a colon in the header, a Python dictionary.
std::string_view value_of(std::string_view header, std::string_view key) {
    std::size_t at = header.find(fmt::format("'{}'", key));
    if (at == std::string_view::npos) return {};
    at = header.find(':', at);
    if (at == std::string_view::npos) return {};
    at = header.find_first_not_of(" :", at);
    return at == std::string_view::npos ? std::string_view{} : header.substr(at);
}

bool parse_shape(std::string_view text, std::vector<std::uint64_t>& shape) {
    if (!text.starts_with('(')) return false;
    for (text.remove_prefix(1);;) {
        text.remove_prefix(std::min(text.size(), text.find_first_not_of(" ,")));
        if (text.starts_with(')')) return true;
        std::uint64_t extent = 0;
        const auto [end, failure] = std::from_chars(text.data(), text.data() + text.size(), extent);
        if (failure != std::errc{} || shape.size() == kMostArrayDimensions) return false;
        shape.push_back(extent);
        text.remove_prefix(static_cast<std::size_t>(end - text.data()));
    }
}

/// Where the entries of an archive are listed, and how many there are.
struct Directory {
    std::size_t at = 0, count = 0;
};
Result<Directory> find_directory(Bytes bytes, const Path& place) {
    constexpr std::size_t kEndSize = 22, kLongestComment = 65'535;
    const std::size_t first = bytes.size() > kEndSize + kLongestComment ? bytes.size() - kEndSize - kLongestComment : 0;
    for (std::size_t at = bytes.size() >= kEndSize ? bytes.size() - kEndSize + 1 : 0; at-- > first;)
        if (little<std::uint32_t>(bytes, at) == kEndMark)
            return Directory{little<std::uint32_t>(bytes, at + 16), little<std::uint16_t>(bytes, at + 10)};
    return Error{"is no ZIP archive, or its end is missing", place.string()};
}

struct Entry {
    std::string name;
    std::uint16_t flags = 0, method = 0;
    std::uint64_t packed = 0, size = 0, local = 0;
};
/// The entry at `at`, which moves behind it.
Result<Entry> read_entry(Bytes bytes, std::size_t& at, const Path& place) {
    constexpr std::size_t kEntrySize = 46;
    const Error wrong{"has a damaged list of members", place.string()};
    if (at > bytes.size() || bytes.size() - at < kEntrySize || little<std::uint32_t>(bytes, at) != kEntryMark) return wrong;
    Entry entry{{},
                little<std::uint16_t>(bytes, at + 8),
                little<std::uint16_t>(bytes, at + 10),
                little<std::uint32_t>(bytes, at + 20),
                little<std::uint32_t>(bytes, at + 24),
                little<std::uint32_t>(bytes, at + 42)};
    const std::size_t name = little<std::uint16_t>(bytes, at + 28), extra = little<std::uint16_t>(bytes, at + 30),
                      comment = little<std::uint16_t>(bytes, at + 32);
    if (bytes.size() - at - kEntrySize < name + extra + comment) return wrong;
    entry.name.assign(reinterpret_cast<const char*>(bytes.data()) + at + kEntrySize, name);
    // ZIP64 lists the sizes that do not fit, in this order.
    std::size_t from = at + kEntrySize + name;
    const std::size_t end = from + extra;
    while (end - from >= 4) {
        const auto id = little<std::uint16_t>(bytes, from), length = little<std::uint16_t>(bytes, from + 2);
        std::size_t value = from + 4;
        if (length > end - value) break;
        for (std::uint64_t* each : {&entry.size, &entry.packed, &entry.local})
            if (id == 1 && *each == kStands64 && value + 8 <= from + 4 + length) {
                *each = little<std::uint64_t>(bytes, value);
                value += 8;
            }
        from += 4 + std::size_t{length};
    }
    at += kEntrySize + name + extra + comment;
    return entry;
}

Result<std::vector<std::byte>> unpack(Bytes bytes, const Entry& entry, const Path& place) {
    constexpr std::size_t kLocalSize = 30;
    const Error wrong{fmt::format("has a damaged member {}", entry.name), place.string()};
    if (entry.local > bytes.size() || bytes.size() - entry.local < kLocalSize ||
        little<std::uint32_t>(bytes, entry.local) != kLocalMark)
        return wrong;
    const std::size_t begin = entry.local + kLocalSize + little<std::uint16_t>(bytes, entry.local + 26) +
                              little<std::uint16_t>(bytes, entry.local + 28);
    if (begin > bytes.size() || bytes.size() - begin < entry.packed) return wrong;
    const Bytes packed = bytes.subspan(begin, entry.packed);
    if ((entry.flags & 1) != 0) return Error{fmt::format("has the encrypted member {}", entry.name), place.string()};
    if (entry.method == 8) return inflate_raw(packed, entry.size, place);
    if (entry.method != 0)
        return Error{fmt::format("has the member {} packed by method {}", entry.name, entry.method), place.string()};
    if (entry.packed != entry.size) return wrong;
    return std::vector<std::byte>(packed.begin(), packed.end());
}

}  // namespace

std::uint64_t NumberArray::count() const {
    std::uint64_t count = 1;
    for (const std::uint64_t extent : shape) count *= extent;
    return count;
}

double NumberArray::at(std::uint64_t index) const {
    const std::size_t begin = index * size_of(type);
    switch (type) {
        case ElementType::kU8: return little<std::uint8_t>(values, begin);
        case ElementType::kI32: return little<std::int32_t>(values, begin);
        case ElementType::kI64: return static_cast<double>(little<std::int64_t>(values, begin));
        case ElementType::kF64: return little<double>(values, begin);
        default: return static_cast<double>(little<float>(values, begin));
    }
}

Result<NumberArray> NumberArray::part(std::uint64_t first, std::uint64_t count, std::vector<std::byte>& memory) const {
    const std::size_t begin = first * size_of(type), bytes = count * size_of(type);
    if (!file) return NumberArray{type, {count}, values.subspan(begin, bytes)};
    memory.resize(bytes);
    MILLRACE_TRY(read_exactly(file->file, memory, offset + begin, place));
    return NumberArray{type, {count}, memory};
}

Result<NumberArray> open_npy(const Path& path) {
    MILLRACE_LET(file, open_regular(path));
    std::vector<std::byte> head(std::min<std::uint64_t>(file.size, kLongestHead));
    MILLRACE_TRY(read_exactly(file.file, head, 0, path));
    MILLRACE_LET(array, parse_npy(head, path, file.size));
    array.values = {};
    array.file = std::make_shared<const RegularFile>(std::move(file));
    array.place = path;
    return array;
}

Result<NumberArray> parse_npy(Bytes bytes, const Path& place, std::uint64_t size) {
    const auto wrong = [&](const std::string& what) { return Error{what, place.string()}; };
    if (bytes.size() < 10 || std::memcmp(bytes.data(), "\x93NUMPY", 6) != 0) return wrong("is no NumPy file by its first bytes");
    const bool wide = bytes[6] != std::byte{1};
    if (wide && bytes.size() < 12) return wrong("ends inside its header: truncated");
    const std::size_t begin = wide ? 12 : 10;
    const std::size_t length = wide ? little<std::uint32_t>(bytes, 8) : little<std::uint16_t>(bytes, 8);
    if (length > bytes.size() - begin) return wrong("ends inside its header: truncated");
    const std::string_view header(reinterpret_cast<const char*>(bytes.data()) + begin, length);
    NumberArray array;
    const std::string_view type = value_of(header, "descr");
    const TypeWord* known = nullptr;
    for (const TypeWord& each : kTypeWords)
        if (type.size() >= 5 && type.substr(1, 3) == each.word) known = &each;
    if (known == nullptr)
        return wrong(fmt::format("has elements of type {}; u8, i32, i64, f32 and f64 of little-endian order are read",
                                 type.substr(0, type.find_first_of(",}\n"))));
    array.type = known->type;
    if (!value_of(header, "fortran_order").starts_with("False"))
        return wrong("is column-major; numpy.ascontiguousarray() makes it what is read");
    if (!parse_shape(value_of(header, "shape"), array.shape)) return wrong("has a header without a shape that is read");
    array.offset = begin + length;
    array.values = bytes.subspan(array.offset);
    const std::uint64_t there = (size > 0 ? size : bytes.size()) - array.offset;
    std::uint64_t count = size_of(array.type);
    bool fits = true;
    for (const std::uint64_t extent : array.shape) fits = fits && !__builtin_mul_overflow(count, extent, &count);
    if (!fits || count != there)
        return wrong(fmt::format("says [{}] elements, but {} bytes follow", fmt::join(array.shape, ", "), there));
    return array;
}

Result<std::map<std::string, std::vector<std::byte>>> parse_npz(Bytes bytes, const Path& place, std::uint64_t cap) {
    MILLRACE_LET(directory, find_directory(bytes, place));
    if (directory.count > kMostMembers) return Error{fmt::format("has {} members", directory.count), place.string()};
    std::map<std::string, std::vector<std::byte>> members;
    for (std::size_t i = 0; i < directory.count; ++i) {
        MILLRACE_LET(entry, read_entry(bytes, directory.at, place));
        if (!entry.name.ends_with(".npy")) continue;
        if (entry.size > cap)
            return Error{fmt::format("holds more than {} bytes, unpacked; at most that is read", cap), place.string()};
        cap -= entry.size;
        MILLRACE_LET(member, unpack(bytes, entry, place));
        members[entry.name.substr(0, entry.name.size() - 4)] = std::move(member);
    }
    return members;
}

}  // namespace millrace::io
