#pragma once
// What the library says about a file. Under Hdf5Lock; only io/hdf5_*.cpp include this.

#include <map>

#include "io/hdf5.h"
#include "io/hdf5_format.h"
#include "io/hdf5_library.h"

namespace millrace::io {

/// A description, and what is needed to read the data set without the library.
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
