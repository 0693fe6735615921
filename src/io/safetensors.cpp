#include "io/safetensors.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <limits>
#include <nlohmann/json.hpp>
#include <set>

#include "base/half.h"
#include "base/json.h"

namespace millrace::io {
namespace {

constexpr std::uint64_t kHeaderCap = 100'000'000;
constexpr std::size_t kLargestFile = std::size_t{16} << 30;
constexpr std::size_t kAlignment = 64;
constexpr std::size_t kLengthBytes = 8;                       // that say how long the header is
constexpr std::size_t kPieceElements = std::size_t{1} << 18;  // that are read at once

/// One entry of a safetensors header as written, not yet checked against the data section.
struct HeaderEntry {
    std::string name;
    std::string type;
    std::vector<std::int64_t> shape;  ///< each >= 0
    std::uint64_t begin = 0;
    std::uint64_t end = 0;
};

struct Header {
    std::vector<HeaderEntry> entries;
    Metadata metadata;
};

using HeaderJson = nlohmann::json;

Error header_holds(const Path& place, std::string_view what) {
    return Error{fmt::format("the header holds {}", what), place.string()};
}

/// An error for `value`, which stands at `name` and is of a type that does not belong there.
Error misplaced(const Path& place, const HeaderJson& value, std::string_view name) {
    const char* what = value.is_null()              ? "null"
                       : value.is_boolean()         ? "a boolean"
                       : value.is_number_float()    ? "a fraction"
                       : value.is_number_unsigned() ? "a number"
                       : value.is_number_integer()  ? "a negative number"
                       : value.is_string()          ? "a string"
                       : value.is_object()          ? "an object"
                                                    : "a list";
    return header_holds(place, fmt::format("{} where it does not belong, at '{}'", what, name));
}

/// Refuses what a document would hide or suffer from: it keeps the last of two equal names and any depth of nesting.
Result<HeaderJson> parse_document(std::string_view text, const Path& place) {
    if (base::nests_too_deep(text)) return header_holds(place, "brackets that are nested too deeply");
    std::vector<std::set<std::string>> open;  // names of the objects around
    std::string twice;
    const auto watch = [&](int, HeaderJson::parse_event_t event, HeaderJson& parsed) {
        if (event == HeaderJson::parse_event_t::object_start) open.emplace_back();
        if (event == HeaderJson::parse_event_t::object_end) open.pop_back();
        if (event == HeaderJson::parse_event_t::key && !open.back().insert(parsed.get<std::string>()).second && twice.empty())
            twice = fmt::format("the name '{}' twice", parsed.get<std::string>());
        return true;
    };
    try {
        HeaderJson document = HeaderJson::parse(text, watch);
        if (!twice.empty()) return header_holds(place, twice);
        return document;
    } catch (const HeaderJson::parse_error& problem) {
        return header_holds(place, fmt::format("text that is not JSON at byte {}", problem.byte));
    } catch (const HeaderJson::out_of_range&) {
        return header_holds(place, "a number that is too large");
    }
}

Result<HeaderEntry> header_entry(const std::string& name, const HeaderJson& tensor, const Path& place) {
    if (!tensor.is_object()) return misplaced(place, tensor, name);
    for (const auto& [key, value] : tensor.items())
        if (key != "dtype" && key != "shape" && key != "data_offsets")
            return header_holds(place, fmt::format("tensor '{}' with the unknown key '{}'", name, key));
    if (tensor.size() != 3) return header_holds(place, fmt::format("tensor '{}' without dtype, shape or data_offsets", name));
    const HeaderJson &type = tensor["dtype"], &shape = tensor["shape"], &offsets = tensor["data_offsets"];
    if (!type.is_string()) return misplaced(place, type, name);
    for (const HeaderJson* list : {&shape, &offsets}) {
        if (!list->is_array()) return misplaced(place, *list, name);
        for (const HeaderJson& number : *list)
            if (!number.is_number_unsigned()) return misplaced(place, number, name);
    }
    if (offsets.size() != 2)
        return header_holds(place, fmt::format("data_offsets with {} than two numbers", offsets.size() > 2 ? "more" : "fewer"));
    HeaderEntry entry{name, type.get<std::string>(), {}, offsets[0].get<std::uint64_t>(), offsets[1].get<std::uint64_t>()};
    for (const HeaderJson& extent : shape) {
        if (extent.get<std::uint64_t>() > std::uint64_t{std::numeric_limits<std::int64_t>::max()})
            return header_holds(place, "a dimension that does not fit 63 bits");
        entry.shape.push_back(extent.get<std::int64_t>());
    }
    return entry;
}

/// Parses the JSON header: exactly the known keys, each once, no duplicate names. `place` names the file in errors.
Result<Header> parse_header(std::string_view json, const Path& place) {
    if (json.empty() || json.front() != '{')
        return Error{"the header does not begin with '{': not a safetensors file", place.string()};
    MILLRACE_LET(document, parse_document(json, place));
    Header header;
    for (const auto& [name, value] : document.items()) {
        if (name != "__metadata__") {
            MILLRACE_SET(header.entries.emplace_back(), header_entry(name, value, place));
            continue;
        }
        if (!value.is_object()) return misplaced(place, value, name);
        for (const auto& [key, text] : value.items()) {
            if (!text.is_string()) return misplaced(place, text, name);
            header.metadata[key] = text.get<std::string>();
        }
    }
    return header;
}

/// Elements times size; nothing when that overflows.
std::optional<std::uint64_t> byte_count(std::span<const std::int64_t> shape, ElementType type) {
    std::uint64_t count = size_of(type);
    // A zero anywhere makes the tensor empty, whatever the others would overflow to.
    if (std::ranges::find(shape, 0) != shape.end()) return 0;
    for (const std::int64_t extent : shape)
        if (extent < 0 || __builtin_mul_overflow(count, static_cast<std::uint64_t>(extent), &count)) return std::nullopt;
    return count;
}

std::string shape_text(std::span<const std::int64_t> shape) { return fmt::format("[{}]", fmt::join(shape, ", ")); }

Error tensor_error(const Path& place, std::string_view tensor, std::string_view what) {
    return Error{fmt::format("tensor '{}' {}", tensor, what), place.string()};
}

Result<TensorView> checked_view(const HeaderEntry& entry, std::uint64_t data_bytes, const Path& place) {
    const auto type = element_type_named(entry.type);
    if (!type) return tensor_error(place, entry.name, fmt::format("has the unknown type '{}'", entry.type));
    if (entry.begin > entry.end || entry.end > data_bytes)
        return tensor_error(place, entry.name,
                            fmt::format("lies at bytes {} to {}, but the data section has {}: truncated or damaged", entry.begin,
                                        entry.end, data_bytes));
    const auto wanted = byte_count(entry.shape, *type);
    if (!wanted || *wanted != entry.end - entry.begin)
        return tensor_error(place, entry.name,
                            fmt::format("of shape {} and type {} does not fit its {} bytes", shape_text(entry.shape), entry.type,
                                        entry.end - entry.begin));
    return TensorView{entry.name, *type, entry.shape, nullptr, static_cast<std::size_t>(*wanted)};
}

template <class From, class Convert>
void convert_elements(const std::byte* from, std::span<float> into, Convert convert) {
    for (std::size_t i = 0; i < into.size(); ++i) {
        From value;
        std::memcpy(&value, from + i * sizeof(From), sizeof(From));
        into[i] = convert(value);
    }
}

/// False: the type is not one of floating-point numbers.
bool to_floats(ElementType type, Bytes from, std::span<float> into) {
    switch (type) {
        case ElementType::kF32: std::memcpy(into.data(), from.data(), from.size()); return true;
        case ElementType::kF64:
            convert_elements<double>(from.data(), into, [](double value) { return static_cast<float>(value); });
            return true;
        case ElementType::kF16: convert_elements<std::uint16_t>(from.data(), into, base::from_half); return true;
        case ElementType::kBF16:
            convert_elements<std::uint16_t>(from.data(), into, [](std::uint16_t value) {
                return std::bit_cast<float>(static_cast<std::uint32_t>(value) << 16);
            });
            return true;
        default: return false;
    }
}

/// The length of the header of a file of `size` bytes, by its first ones.
Result<std::uint64_t> header_length_of(Bytes first, std::uint64_t size, const Path& place) {
    std::uint64_t length = 0;
    if (size < sizeof length)
        return Error{fmt::format("has {} bytes; a safetensors file has at least 8: truncated", size), place.string()};
    std::memcpy(&length, first.data(), sizeof length);
    if (length > kHeaderCap)
        return Error{
            fmt::format("claims a header of {} bytes; at most {} are allowed: not a safetensors file", length, kHeaderCap),
            place.string()};
    if (length > size - sizeof length)
        return Error{fmt::format("claims a header of {} bytes but has only {}: truncated", length, size - sizeof length),
                     place.string()};
    return length;
}

Result<std::string> header_text(std::span<const TensorView> tensors, const Metadata& metadata, const Path& place) {
    nlohmann::ordered_json header = nlohmann::ordered_json::object();
    if (!metadata.empty()) header["__metadata__"] = metadata;
    std::set<std::string_view> names{"__metadata__"};
    std::uint64_t at = 0;
    for (const TensorView& tensor : tensors) {
        if (!names.insert(tensor.name).second) return tensor_error(place, tensor.name, "appears twice or has a reserved name");
        const auto wanted = byte_count(tensor.shape, tensor.type);
        if (!wanted || *wanted != tensor.bytes)
            return tensor_error(place, tensor.name,
                                fmt::format("of shape {} does not have {} bytes", shape_text(tensor.shape), tensor.bytes));
        header[tensor.name] = {
            {"dtype", name_of(tensor.type)}, {"shape", tensor.shape}, {"data_offsets", {at, at + tensor.bytes}}};
        at += tensor.bytes;
    }
    std::string text;
    try {
        text = header.dump();  // strictly: names are as they are read again
    } catch (const nlohmann::json::exception&) {
        return Error{"a tensor name or metadata text is not UTF-8", place.string()};
    }
    text.append((kAlignment - (text.size() + 8) % kAlignment) % kAlignment, ' ');
    if (text.size() > kHeaderCap)
        return Error{fmt::format("the header would have {} bytes; {} are allowed", text.size(), kHeaderCap), place.string()};
    return text;
}

}  // namespace

TensorView float_tensor(std::string name, std::vector<std::int64_t> shape, std::span<const float> values) {
    const auto wanted = byte_count(shape, ElementType::kF32);
    MILLRACE_ASSERT(wanted && *wanted == values.size_bytes(), name);
    return TensorView{std::move(name), ElementType::kF32, std::move(shape), std::as_bytes(values).data(), values.size_bytes()};
}

Result<std::uint64_t> write_safetensors(ByteSink& sink, std::span<const TensorView> tensors, const Metadata& metadata,
                                        const Path& place) {
    MILLRACE_LET(header, header_text(tensors, metadata, place));
    const std::uint64_t length = header.size();
    MILLRACE_TRY(sink.write(std::as_bytes(std::span(&length, 1))));
    MILLRACE_TRY(sink.write(bytes_of(header)));
    std::uint64_t total = sizeof length + length;
    for (const TensorView& tensor : tensors) {
        if (tensor.pour)
            MILLRACE_TRY(tensor.pour(sink));
        else
            MILLRACE_TRY(sink.write({tensor.data, tensor.bytes}));
        total += tensor.bytes;
    }
    return total;
}

Result<SafetensorsFile> SafetensorsFile::open(const Path& path) {
    // Read, not mapped: a file that shrinks under a mapping would kill the process.
    MILLRACE_LET(bytes, read_file(path, kLargestFile));
    return parse(std::move(bytes), path);
}

Result<SafetensorsFile> SafetensorsFile::parse(std::vector<std::byte> bytes, const Path& place) {
    MILLRACE_LET(length, header_length_of(bytes, bytes.size(), place));
    MILLRACE_LET(file, parse_head(Bytes(bytes).first(kLengthBytes + length), bytes.size(), place));
    file.bytes_ = std::move(bytes);
    for (std::size_t i = 0; i < file.tensors_.size(); ++i) file.tensors_[i].data = file.bytes_.data() + file.offsets_[i];
    return file;
}

Result<SafetensorsFile> SafetensorsFile::open_in_place(RegularFile opened, const Path& place) {
    std::array<std::byte, kLengthBytes> first{};
    const std::size_t there = std::min<std::uint64_t>(opened.size, first.size());
    MILLRACE_TRY(read_exactly(opened.file, std::span(first).first(there), 0, place));
    MILLRACE_LET(length, header_length_of(Bytes(first).first(there), opened.size, place));
    std::vector<std::byte> head(kLengthBytes + length);
    MILLRACE_TRY(read_exactly(opened.file, head, 0, place));
    MILLRACE_LET(file, parse_head(head, opened.size, place));
    file.file_ = std::move(opened);
    return file;
}

Result<SafetensorsFile> SafetensorsFile::parse_head(Bytes head, std::uint64_t size, const Path& place) {
    SafetensorsFile file;
    file.place_ = place;
    MILLRACE_LET(header,
                 parse_header({reinterpret_cast<const char*>(head.data()) + kLengthBytes, head.size() - kLengthBytes}, place));
    const std::uint64_t data_bytes = size - head.size();
    std::ranges::stable_sort(header.entries, {}, [](const HeaderEntry& entry) { return std::pair(entry.begin, entry.end); });
    std::uint64_t expected = 0;
    for (const HeaderEntry& entry : header.entries) {
        MILLRACE_LET(view, checked_view(entry, data_bytes, place));
        if (entry.begin < expected) return tensor_error(place, entry.name, "overlaps the tensor before it");
        if (entry.begin > expected)
            return tensor_error(place, entry.name, fmt::format("leaves a hole of {} bytes before it", entry.begin - expected));
        expected = entry.end;
        file.index_.emplace(entry.name, file.tensors_.size());
        file.offsets_.push_back(head.size() + entry.begin);
        file.tensors_.push_back(std::move(view));
    }
    if (expected != data_bytes)
        return Error{fmt::format("has {} bytes after the last tensor", data_bytes - expected), place.string()};
    file.metadata_ = std::move(header.metadata);
    return file;
}

Result<Bytes> SafetensorsFile::bytes_of_tensor(const TensorView& tensor, std::size_t offset, std::size_t count,
                                               std::vector<std::byte>& memory) const {
    if (!file_) return Bytes(tensor.data + offset, count);
    memory.resize(count);
    MILLRACE_TRY(read(tensor, offset, memory));
    return Bytes(memory);
}

Status SafetensorsFile::read(const TensorView& tensor, std::uint64_t offset, std::span<std::byte> into) const {
    if (file_)
        return read_exactly(file_->file, into, offsets_[static_cast<std::size_t>(&tensor - tensors_.data())] + offset, place_);
    std::memcpy(into.data(), tensor.data + offset, into.size());
    return base::ok();
}

Result<std::vector<std::byte>> SafetensorsFile::read(const TensorView& tensor) const {
    std::vector<std::byte> memory;
    MILLRACE_LET(bytes, bytes_of_tensor(tensor, 0, tensor.bytes, memory));
    if (memory.empty()) memory.assign(bytes.begin(), bytes.end());
    return memory;
}

Status SafetensorsFile::add_to(Checksum64& sum) const {
    if (file_) return add_file(file_->file, file_->size, sum, place_);
    sum.update(bytes_);
    return base::ok();
}

const TensorView* SafetensorsFile::find(std::string_view name) const {
    const auto at = index_.find(name);
    return at == index_.end() ? nullptr : &tensors_[at->second];
}

Status SafetensorsFile::copy_floats(std::string_view name, std::span<const std::int64_t> shape, std::span<float> into,
                                    std::size_t first) const {
    const TensorView* tensor = find(name);
    if (tensor == nullptr) return tensor_error(place_, name, "is missing: the file belongs to another model");
    if (!std::ranges::equal(tensor->shape, shape))
        return tensor_error(place_, name,
                            fmt::format("has shape {}, the model needs {}", shape_text(tensor->shape), shape_text(shape)));
    const std::size_t each = size_of(tensor->type);
    MILLRACE_ASSERT(first + into.size() <= tensor->bytes / each, "destination does not match the shape");
    std::vector<std::byte> memory;
    while (!into.empty()) {
        const std::span<float> piece = into.first(std::min(into.size(), kPieceElements));
        MILLRACE_LET(from, bytes_of_tensor(*tensor, first * each, piece.size() * each, memory));
        if (!to_floats(tensor->type, from, piece))
            return tensor_error(place_, name, fmt::format("has type {}, a floating-point type is needed", name_of(tensor->type)));
        into = into.subspan(piece.size());
        first += piece.size();
    }
    return base::ok();
}

}  // namespace millrace::io
