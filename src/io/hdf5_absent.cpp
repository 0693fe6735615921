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

struct Hdf5Dataset::State {
    Hdf5Description description;
};
std::string Hdf5Description::text() const { return name; }
Hdf5Dataset::Hdf5Dataset(std::shared_ptr<const State> state) : state_(std::move(state)) {}
const Hdf5Description& Hdf5Dataset::description() const { return state_->description; }
std::uint64_t Hdf5Dataset::rows() const { return 0; }
std::uint64_t Hdf5Dataset::row_bytes() const { return 0; }
bool Hdf5Dataset::direct() const { return false; }
std::string Hdf5Dataset::reading() const { return {}; }
Status Hdf5Dataset::read_rows(std::uint64_t, std::uint64_t, std::span<std::byte>) const { return hdf5_absent({}); }

struct Hdf5File::State {
    std::vector<Hdf5Description> datasets;
    std::map<std::string, std::string, std::less<>> attributes;
};
Hdf5File::Hdf5File(std::shared_ptr<const State> state) : state_(std::move(state)) {}
Result<Hdf5File> Hdf5File::open(const Path& path) { return hdf5_absent(path); }
const std::vector<Hdf5Description>& Hdf5File::datasets() const { return state_->datasets; }
const Hdf5Description* Hdf5File::find(std::string_view) const { return nullptr; }
const std::map<std::string, std::string, std::less<>>& Hdf5File::attributes() const { return state_->attributes; }
Result<std::string> Hdf5File::attribute(std::string_view) const { return hdf5_absent({}); }
Result<Hdf5Dataset> Hdf5File::dataset(std::string_view) const { return hdf5_absent({}); }

}  // namespace millrace::io
