#pragma once
// The HDF5 library behind one mutex, with handles that close themselves. Only io/hdf5*.cpp include this.

// The calls of 1.10 also where a newer library is installed.
#define H5_USE_110_API
#include <hdf5.h>

#include <map>
#include <mutex>
#include <string_view>

#include "io/element_type.h"
#include "io/file.h"
#include "io/hdf5.h"
#include "io/hdf5_format.h"

namespace millrace::io {

/// Held around every call into the library: not every build of it is safe for threads. Keeps it from printing its errors.
class Hdf5Lock {
public:
    Hdf5Lock();

private:
    std::lock_guard<std::recursive_mutex> guard_;
};

/// Owns an id of the library; takes the lock to close it.
class Hdf5Handle {
public:
    using Close = herr_t (*)(hid_t);
    Hdf5Handle() = default;
    Hdf5Handle(hid_t id, Close closes) : id_(id), close_(closes) {}
    Hdf5Handle(Hdf5Handle&& other) noexcept : id_(std::exchange(other.id_, -1)), close_(other.close_) {}
    Hdf5Handle& operator=(Hdf5Handle&& other) noexcept;
    ~Hdf5Handle() { close(); }

    [[nodiscard]] hid_t get() const { return id_; }
    [[nodiscard]] bool valid() const { return id_ >= 0; }
    /// False when the library could not: bytes it still held may be lost.
    bool close();

private:
    hid_t id_ = -1;
    Close close_ = nullptr;
};

/// An error for `place` with the library's innermost reason. Under the lock, right after the call that failed.
Error hdf5_error(std::string_view what, const Path& place);

/// How files are opened: without locks, which some network file systems refuse. A file that is open twice must be opened alike.
Hdf5Handle hdf5_file_access();

/// The little-endian type of the file; invalid for types that are not written. F16 is IEEE half.
Hdf5Handle hdf5_type_of(ElementType type);

/// What the library says about a data set under Hdf5Lock: a description, and what is needed to read the data set without the
/// library.
struct Hdf5Found {
    Hdf5Description description;
    Hdf5Geometry geometry;
    std::string by_library;                ///< why the library must read it; empty: it need not
    std::string missing;                   ///< a filter that cannot be undone here
    std::uint64_t address = kHdf5Nowhere;  ///< of contiguous data
};

Result<Hdf5Found> describe_dataset(hid_t file, const std::string& name, const Hdf5Bytes& bytes);
/// The names of all data sets, in order.
Result<std::vector<std::string>> dataset_names(hid_t file, const Path& place);
/// The attributes of the file that are texts or single numbers.
Result<std::map<std::string, std::string, std::less<>>> read_attributes(hid_t file, const Path& place);

}  // namespace millrace::io
