#include "io/hdf5_library.h"

#include <fmt/format.h>
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

}  // namespace millrace::io
