#include "io/hdf5_library.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cstdlib>

#include "io/hdf5.h"

namespace millrace::io {
namespace {

std::recursive_mutex& library_mutex() {
    static std::recursive_mutex mutex;
    return mutex;
}

herr_t take_innermost(unsigned /*depth*/, const H5E_error2_t* entry, void* into) {
    auto& reason = *static_cast<std::string*>(into);
    if (!reason.empty()) return 0;
    if (entry->desc != nullptr) reason = entry->desc;
    return 0;
}

constexpr std::size_t kLongestText = std::size_t{64} << 20;

std::optional<std::string> text_of(hid_t attribute, hid_t type) {
    const htri_t variable = ::H5Tis_variable_str(type);
    if (variable > 0) {
        // The library converts no other character set than the file's own.
        const Hdf5Handle memory(::H5Tcopy(H5T_C_S1), ::H5Tclose);
        char* text = nullptr;
        if (::H5Tset_size(memory.get(), H5T_VARIABLE) < 0 || ::H5Tset_cset(memory.get(), ::H5Tget_cset(type)) < 0 ||
            ::H5Aread(attribute, memory.get(), static_cast<void*>(&text)) < 0)
            return std::nullopt;
        std::string copy = text != nullptr ? text : "";
        ::H5free_memory(text);
        return copy;
    }
    const std::size_t size = ::H5Tget_size(type);
    if (variable < 0 || size == 0 || size > kLongestText) return std::nullopt;
    std::string text(size, '\0');
    if (::H5Aread(attribute, type, text.data()) < 0) return std::nullopt;
    if (::H5Tget_strpad(type) == H5T_STR_SPACEPAD)
        text.erase(text.find_last_not_of(' ') + 1);
    else
        text.resize(std::min(text.find('\0'), text.size()));
    return text;
}

std::optional<std::string> value_of(hid_t attribute) {
    const Hdf5Handle type(::H5Aget_type(attribute), ::H5Tclose), space(::H5Aget_space(attribute), ::H5Sclose);
    if (!type.valid() || !space.valid() || ::H5Sget_simple_extent_npoints(space.get()) != 1) return std::nullopt;
    long long whole = 0;
    double real = 0;
    switch (::H5Tget_class(type.get())) {
        case H5T_STRING: return text_of(attribute, type.get());
        case H5T_INTEGER:
            if (::H5Aread(attribute, H5T_NATIVE_LLONG, &whole) < 0) return std::nullopt;
            return fmt::format("{}", whole);
        case H5T_FLOAT:
            if (::H5Aread(attribute, H5T_NATIVE_DOUBLE, &real) < 0) return std::nullopt;
            return fmt::format("{}", real);
        default: return std::nullopt;
    }
}

herr_t take_attribute(hid_t object, const char* name, const H5A_info_t*, void* into) {
    const Hdf5Handle attribute(::H5Aopen(object, name, H5P_DEFAULT), ::H5Aclose);
    if (!attribute.valid()) return 0;
    if (auto text = value_of(attribute.get()))
        static_cast<std::map<std::string, std::string, std::less<>>*>(into)->insert_or_assign(name, std::move(*text));
    return 0;
}

constexpr std::size_t kMostDatasets = 65536;

struct TypeFound {
    std::optional<ElementType> type;
    std::string text;
    bool swapped = false;
};

TypeFound type_found(hid_t type) {
    constexpr std::array kTypes{ElementType::kF64, ElementType::kF32, ElementType::kF16, ElementType::kI64,
                                ElementType::kI32, ElementType::kI16, ElementType::kI8,  ElementType::kU64,
                                ElementType::kU32, ElementType::kU16, ElementType::kU8};
    for (const ElementType known : kTypes) {
        const Hdf5Handle ours = hdf5_type_of(known);
        if (::H5Tequal(type, ours.get()) > 0) return {known, std::string(name_of(known)), false};
        if (::H5Tset_order(ours.get(), H5T_ORDER_BE) >= 0 && ::H5Tequal(type, ours.get()) > 0)
            return {known, fmt::format("big-endian {}", name_of(known)), true};
    }
    switch (::H5Tget_class(type)) {
        case H5T_STRING: return {std::nullopt, "text"};
        case H5T_COMPOUND: return {std::nullopt, "records"};
        case H5T_ENUM: return {std::nullopt, "named values"};
        case H5T_VLEN: return {std::nullopt, "lists"};
        case H5T_INTEGER:
        case H5T_FLOAT: return {std::nullopt, "unusual numbers"};
        default: return {std::nullopt, "something else"};
    }
}

/// Fills in filters; says why the library has to undo them.
void find_filters(hid_t creation, Hdf5Found& found) {
    const int count = ::H5Pget_nfilters(creation);
    for (int i = 0; i < count; ++i) {
        unsigned flags = 0, configuration = 0;
        std::size_t values = 0;
        std::array<char, 64> name{};
        const H5Z_filter_t id = ::H5Pget_filter2(creation, static_cast<unsigned>(i), &flags, &values, nullptr, name.size(),
                                                 name.data(), &configuration);
        if (id == H5Z_FILTER_DEFLATE || id == H5Z_FILTER_SHUFFLE) {
            const bool gzip = id == H5Z_FILTER_DEFLATE;
            const Hdf5Filter filter = gzip ? Hdf5Filter::kGzip : Hdf5Filter::kShuffle;
            found.description.filters.emplace_back(gzip ? "gzip" : "shuffle");
            const bool in_order =
                found.geometry.filters.empty() || (gzip && found.geometry.filters.back() == Hdf5Filter::kShuffle);
            if (!in_order || found.geometry.filters.size() > 1) found.by_library = "its filters come in an unusual order";
            found.geometry.filters.push_back(filter);
            continue;
        }
        found.description.filters.push_back(name[0] != '\0' ? std::string(name.data()) : fmt::format("filter {}", id));
        if (::H5Zfilter_avail(id) <= 0) found.missing = found.description.filters.back();
        found.by_library = fmt::format("only the library undoes the filter '{}'", found.description.filters.back());
    }
}

void find_layout(hid_t dataset, hid_t creation, Hdf5Found& found, const Hdf5Bytes& bytes) {
    Hdf5Geometry& geometry = found.geometry;
    switch (::H5Pget_layout(creation)) {
        case H5D_CONTIGUOUS: {
            if (::H5Pget_external_count(creation) != 0) {
                found.by_library = "its data lies in other files";
                return;
            }
            // The library counts from the beginning of the file, we from the end of the user block.
            const haddr_t address = ::H5Dget_offset(dataset);
            if (address != HADDR_UNDEF) found.address = address - bytes.base;
            return;
        }
        case H5D_CHUNKED: {
            std::vector<hsize_t> chunk(geometry.dims.size());
            ::H5Pget_chunk(creation, static_cast<int>(chunk.size()), chunk.data());
            geometry.chunk.assign(chunk.begin(), chunk.end());
            unsigned options = 0;
            ::H5Pget_chunk_opts(creation, &options);
            if ((options & H5D_CHUNK_DONT_FILTER_PARTIAL_CHUNKS) != 0)
                found.by_library = "chunks at the edges are stored unfiltered";
            found.description.chunk = geometry.chunk;
            find_filters(creation, found);
            return;
        }
        case H5D_COMPACT: found.by_library = "it lies in the file's structure"; return;
        default: found.by_library = "its layout is unusual"; return;
    }
}

herr_t take_name(hid_t, const char* name, const H5O_info_t* about, void* into) {
    auto& names = *static_cast<std::vector<std::string>*>(into);
    if (about->type == H5O_TYPE_DATASET) names.emplace_back(name);
    return names.size() > kMostDatasets ? -1 : 0;
}

}  // namespace

bool have_hdf5() { return true; }

Hdf5Lock::Hdf5Lock() : guard_(library_mutex()) {
    // Its cleaning up at the end of the process reads freed memory after a write that failed.
    static const bool no_cleaning = ::H5dont_atexit() >= 0;
    (void)no_cleaning;
    ::H5Eset_auto2(H5E_DEFAULT, nullptr, nullptr);
}

Hdf5Handle& Hdf5Handle::operator=(Hdf5Handle&& other) noexcept {
    if (this != &other) {
        close();
        id_ = std::exchange(other.id_, -1);
        close_ = other.close_;
    }
    return *this;
}

bool Hdf5Handle::close() {
    if (id_ < 0) return true;
    const Hdf5Lock lock;
    return close_(std::exchange(id_, -1)) >= 0;
}

Error hdf5_error(std::string_view what, const Path& place) {
    std::string reason;
    ::H5Ewalk2(H5E_DEFAULT, H5E_WALK_UPWARD, take_innermost, &reason);
    if (reason.empty()) reason = "the HDF5 library gives no reason";
    // Behind a call of the system that failed the library names its number; a full disk is not bad input.
    constexpr std::string_view mark = "errno = ";
    if (const std::size_t at = reason.find(mark); at != std::string::npos)
        if (const int number = std::atoi(reason.c_str() + at + mark.size()); number > 0) return system_error(what, place, number);
    return Error{fmt::format("{}: {}", what, reason), place.string()};
}

Hdf5Handle hdf5_file_access() {
    Hdf5Handle access(::H5Pcreate(H5P_FILE_ACCESS), ::H5Pclose);
    return access.valid() && ::H5Pset_file_locking(access.get(), 0, 1) >= 0 ? std::move(access) : Hdf5Handle{};
}

Hdf5Handle hdf5_type_of(ElementType type) {
    const auto copy_of = [](hid_t original) { return Hdf5Handle(::H5Tcopy(original), ::H5Tclose); };
    switch (type) {
        case ElementType::kF64: return copy_of(H5T_IEEE_F64LE);
        case ElementType::kF32: return copy_of(H5T_IEEE_F32LE);
        case ElementType::kF16: {
            Hdf5Handle half = copy_of(H5T_IEEE_F32LE);
            // Fields first: they must lie inside the type before it shrinks.
            const bool made = ::H5Tset_fields(half.get(), 15, 10, 5, 0, 10) >= 0 && ::H5Tset_size(half.get(), 2) >= 0 &&
                              ::H5Tset_ebias(half.get(), 15) >= 0;
            return made ? std::move(half) : Hdf5Handle{};
        }
        case ElementType::kI64: return copy_of(H5T_STD_I64LE);
        case ElementType::kI32: return copy_of(H5T_STD_I32LE);
        case ElementType::kI16: return copy_of(H5T_STD_I16LE);
        case ElementType::kI8: return copy_of(H5T_STD_I8LE);
        case ElementType::kU64: return copy_of(H5T_STD_U64LE);
        case ElementType::kU32: return copy_of(H5T_STD_U32LE);
        case ElementType::kU16: return copy_of(H5T_STD_U16LE);
        case ElementType::kU8: return copy_of(H5T_STD_U8LE);
        case ElementType::kBF16:
        case ElementType::kBool: return {};
    }
    return {};
}

Result<std::map<std::string, std::string, std::less<>>> read_attributes(hid_t file, const Path& place) {
    std::map<std::string, std::string, std::less<>> found;
    hsize_t from = 0;
    if (::H5Aiterate2(file, H5_INDEX_NAME, H5_ITER_INC, &from, take_attribute, &found) < 0)
        return hdf5_error("its attributes cannot be listed", place);
    return found;
}

Result<Hdf5Found> describe_dataset(hid_t file, const std::string& name, const Hdf5Bytes& bytes) {
    const auto failed = [&](std::string_view what) {
        return hdf5_error(fmt::format("data set '{}' {}", name, what), bytes.place);
    };
    const Hdf5Handle dataset(::H5Dopen2(file, name.c_str(), H5P_DEFAULT), ::H5Dclose);
    if (!dataset.valid()) return failed("cannot be opened");
    const Hdf5Handle type(::H5Dget_type(dataset.get()), ::H5Tclose), space(::H5Dget_space(dataset.get()), ::H5Sclose),
        creation(::H5Dget_create_plist(dataset.get()), ::H5Pclose);
    const int axes = space.valid() ? ::H5Sget_simple_extent_ndims(space.get()) : -1;
    if (!type.valid() || !creation.valid() || axes < 0) return failed("cannot be described");
    Hdf5Found found;
    const auto [element, text, swapped] = type_found(type.get());
    found.description.name = found.geometry.name = name;
    found.description.type = element;
    found.description.type_text = text;
    std::vector<hsize_t> dims(static_cast<std::size_t>(axes));
    ::H5Sget_simple_extent_dims(space.get(), dims.data(), nullptr);
    found.geometry.dims.assign(dims.begin(), dims.end());
    found.geometry.element = element ? size_of(*element) : ::H5Tget_size(type.get());
    found.description.dims = found.geometry.dims;
    find_layout(dataset.get(), creation.get(), found, bytes);
    if (!element) return found;
    if (swapped) found.by_library = "the numbers are big-endian";
    H5D_fill_value_t fill = H5D_FILL_VALUE_UNDEFINED;
    const Hdf5Handle memory = hdf5_type_of(*element);
    if (::H5Pfill_value_defined(creation.get(), &fill) >= 0 && fill == H5D_FILL_VALUE_USER_DEFINED &&
        ::H5Pget_fill_value(creation.get(), memory.get(), found.geometry.fill.data()) < 0)
        found.by_library = "its fill value is unusual";
    return found;
}

Result<std::vector<std::string>> dataset_names(hid_t file, const Path& place) {
    std::vector<std::string> names;
    if (::H5Ovisit(file, H5_INDEX_NAME, H5_ITER_INC, take_name, &names) < 0) {
        if (names.size() > kMostDatasets) return Error{fmt::format("has more than {} data sets", kMostDatasets), place.string()};
        return hdf5_error("its data sets cannot be listed", place);
    }
    std::ranges::sort(names);
    return names;
}

}  // namespace millrace::io
