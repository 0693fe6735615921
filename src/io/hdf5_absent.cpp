// HDF5 in a build without its library.

#include "io/hdf5_writer.h"

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

struct Hdf5Writer::State {};
Hdf5Writer::Hdf5Writer(std::unique_ptr<State> state) : state_(std::move(state)) {}
Hdf5Writer::Hdf5Writer(Hdf5Writer&&) noexcept = default;
Hdf5Writer& Hdf5Writer::operator=(Hdf5Writer&&) noexcept = default;
Hdf5Writer::~Hdf5Writer() = default;
Result<Hdf5Writer> Hdf5Writer::create(const Path& path) { return hdf5_absent(path); }
Result<std::size_t> Hdf5Writer::add_dataset(const Hdf5Layout&) { return hdf5_absent({}); }
Status Hdf5Writer::append(std::size_t, Bytes) { return hdf5_absent({}); }
Status Hdf5Writer::set_attribute(std::string_view, std::string_view) { return hdf5_absent({}); }
Status Hdf5Writer::finish() { return hdf5_absent({}); }

}  // namespace millrace::io
