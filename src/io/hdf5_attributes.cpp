#include <fmt/format.h>

#include "io/hdf5_describe.h"

namespace millrace::io {
namespace {

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

}  // namespace

Result<std::map<std::string, std::string, std::less<>>> read_attributes(hid_t file, const Path& place) {
    std::map<std::string, std::string, std::less<>> found;
    hsize_t from = 0;
    if (::H5Aiterate2(file, H5_INDEX_NAME, H5_ITER_INC, &from, take_attribute, &found) < 0)
        return hdf5_error("its attributes cannot be listed", place);
    return found;
}

}  // namespace millrace::io
