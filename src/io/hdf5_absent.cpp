// HDF5 in a build without its library.

#include "io/hdf5.h"

namespace millrace::io {
namespace {

Error hdf5_absent(const Path& place) {
    return Error{
        "is an HDF5 file, and this millrace was built without HDF5: install Debian's libhdf5-dev and libdeflate-dev (tools/setup "
        "does) "
        "and build again",
        place.string()};
}

}  // namespace

bool have_hdf5() { return false; }

Result<std::unique_ptr<Hdf5Writer>> Hdf5Writer::create(const Path& path) { return hdf5_absent(path); }
Result<std::shared_ptr<const Hdf5File>> Hdf5File::open(const Path& path) { return hdf5_absent(path); }
std::string Hdf5Description::text() const { return name; }

}  // namespace millrace::io
