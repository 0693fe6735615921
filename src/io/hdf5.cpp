#include "io/hdf5.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <bit>

#include <algorithm>

#include "io/hdf5_describe.h"

namespace millrace::io {

struct Hdf5File::State {
    Hdf5Bytes bytes;
    Hdf5Handle file;
    std::vector<Hdf5Description> datasets;
    std::map<std::string, std::string, std::less<>> attributes;
};

struct Hdf5Dataset::State {
    std::shared_ptr<const Hdf5File::State> file;
    Hdf5Found found;
    Hdf5Handle id;
};

namespace {

Error absent(const char* what, std::string_view name, const std::vector<std::string_view>& known, const Path& place) {
    return Error{
        fmt::format("has no {} '{}'; it has: {}", what, name, known.empty() ? "none" : fmt::format("{}", fmt::join(known, ", "))),
        place.string()};
}

/// As Hdf5Fetch: the library finds the chunk, whatever its index.
Status fetch_chunk(hid_t dataset, const Hdf5Found& found, const std::uint64_t* origin, Hdf5Chunk& chunk, const Hdf5Bytes& file) {
    const Hdf5Lock lock;
    const std::vector<hsize_t> at(origin, origin + found.geometry.dims.size());
    hsize_t bytes = 0;
    const bool is_known = ::H5Dget_chunk_storage_size(dataset, at.data(), &bytes) >= 0 && bytes <= file.size;
    chunk.stored.resize(is_known ? bytes : 0);
    if (is_known && bytes == 0) return base::ok();
    if (!is_known || ::H5Dread_chunk(dataset, H5P_DEFAULT, at.data(), &chunk.skipped, chunk.stored.data()) < 0) {
        const Error error =
            hdf5_error(fmt::format("data set '{}': chunk {} cannot be read", found.description.name, chunk.number), file.place);
        // Of a set without filters the library does not say before that a chunk was never written.
        chunk.stored.clear();
        haddr_t address = 0;
        if (::H5Dget_chunk_info_by_coord(dataset, at.data(), nullptr, &address, &bytes) >= 0 && address == HADDR_UNDEF)
            return base::ok();
        return error;
    }
    return base::ok();
}

Status read_by_library(hid_t dataset, const Hdf5Found& found, std::uint64_t first, std::uint64_t count, std::span<std::byte> out,
                       const Path& place) {
    const Hdf5Lock lock;
    std::vector<hsize_t> start(found.geometry.dims.size(), 0), extent(found.geometry.dims.begin(), found.geometry.dims.end());
    start[0] = first;
    extent[0] = count;
    const Hdf5Handle to(::H5Screate_simple(static_cast<int>(extent.size()), extent.data(), nullptr), ::H5Sclose);
    const Hdf5Handle from(::H5Dget_space(dataset), ::H5Sclose), type = hdf5_type_of(*found.description.type);
    if (!to.valid() || !from.valid() ||
        ::H5Sselect_hyperslab(from.get(), H5S_SELECT_SET, start.data(), nullptr, extent.data(), nullptr) < 0 ||
        ::H5Dread(dataset, type.get(), to.get(), from.get(), H5P_DEFAULT, out.data()) < 0)
        return hdf5_error(fmt::format("data set '{}' cannot be read", found.description.name), place);
    return base::ok();
}

}  // namespace

std::string Hdf5Description::text() const {
    std::string out = fmt::format("{} [{}] {}", name, fmt::join(dims, ", "), type_text);
    if (!chunk.empty()) out += fmt::format(", chunks of [{}]", fmt::join(chunk, ", "));
    for (const std::string& filter : filters) out += ", " + filter;
    return out;
}

Hdf5File::Hdf5File(std::shared_ptr<const State> state) : state_(std::move(state)) {}
const std::vector<Hdf5Description>& Hdf5File::datasets() const { return state_->datasets; }
const std::map<std::string, std::string, std::less<>>& Hdf5File::attributes() const { return state_->attributes; }

const Hdf5Description* Hdf5File::find(std::string_view name) const {
    const auto at = std::ranges::find(state_->datasets, name, &Hdf5Description::name);
    return at != state_->datasets.end() ? &*at : nullptr;
}

Result<Hdf5File> Hdf5File::open(const Path& path) {
    auto state = std::make_shared<State>();
    MILLRACE_SET(state->bytes, Hdf5Bytes::open(path));
    const Hdf5Lock lock;
    const Hdf5Handle access = hdf5_file_access();
    if (!access.valid()) return hdf5_error("cannot be set up", path);
    state->file = Hdf5Handle(::H5Fopen(path.c_str(), H5F_ACC_RDONLY, access.get()), ::H5Fclose);
    if (!state->file.valid()) return hdf5_error("is no HDF5 file that can be read", path);
    const Hdf5Handle creation(::H5Fget_create_plist(state->file.get()), ::H5Pclose);
    hsize_t user_block = 0;
    if (!creation.valid() || ::H5Pget_userblock(creation.get(), &user_block) < 0) return hdf5_error("cannot be described", path);
    state->bytes.base = user_block;
    MILLRACE_LET(names, dataset_names(state->file.get(), path));
    for (const std::string& name : names) {
        MILLRACE_LET(found, describe_dataset(state->file.get(), name, state->bytes));
        state->datasets.push_back(std::move(found.description));
    }
    MILLRACE_SET(state->attributes, read_attributes(state->file.get(), path));
    MILLRACE_TRY(state->bytes.still_at_place());
    MILLRACE_TRY(state->bytes.unchanged());
    return Hdf5File(std::move(state));
}

Result<std::string> Hdf5File::attribute(std::string_view name) const {
    const auto at = state_->attributes.find(name);
    if (at != state_->attributes.end()) return at->second;
    std::vector<std::string_view> names;
    for (const auto& [key, value] : state_->attributes) names.push_back(key);
    return absent("text attribute", name, names, state_->bytes.place);
}

Result<Hdf5Dataset> Hdf5File::dataset(std::string_view name) const {
    const Path& place = state_->bytes.place;
    if (find(name) == nullptr) {
        std::vector<std::string_view> names;
        for (const Hdf5Description& other : state_->datasets) names.push_back(other.name);
        return absent("data set", name, names, place);
    }
    MILLRACE_TRY(state_->bytes.unchanged());
    auto state = std::make_shared<Hdf5Dataset::State>();
    state->file = state_;
    {
        const Hdf5Lock lock;
        MILLRACE_SET(state->found, describe_dataset(state_->file.get(), std::string(name), state_->bytes));
        state->id = Hdf5Handle(::H5Dopen2(state_->file.get(), state->found.description.name.c_str(), H5P_DEFAULT), ::H5Dclose);
        if (!state->id.valid()) return hdf5_error(fmt::format("data set '{}' cannot be opened", name), place);
    }
    Hdf5Found& found = state->found;
    if (!found.description.type)
        return Error{fmt::format("data set '{}' holds {}; numbers are needed", name, found.description.type_text),
                     place.string()};
    if (found.geometry.dims.empty())
        return Error{fmt::format("data set '{}' is a single value; rows are needed", name), place.string()};
    if (!found.missing.empty())
        return Error{
            fmt::format("data set '{}' is packed by '{}', which the HDF5 library here does not know; pack it with gzip (h5repack "
                        "-f GZIP=4, or compression=\"gzip\" in h5py)",
                        name, found.missing),
            place.string()};
    MILLRACE_TRY(found.geometry.check(place));
    return Hdf5Dataset(std::move(state));
}

Hdf5Dataset::Hdf5Dataset(std::shared_ptr<const State> state) : state_(std::move(state)) {}
const Hdf5Description& Hdf5Dataset::description() const { return state_->found.description; }
std::uint64_t Hdf5Dataset::rows() const { return state_->found.geometry.dims[0]; }
std::uint64_t Hdf5Dataset::row_bytes() const { return state_->found.geometry.row_bytes(); }
bool Hdf5Dataset::direct() const { return state_->found.by_library.empty(); }

std::string Hdf5Dataset::reading() const {
    if (!direct()) return "by the library: " + state_->found.by_library;
    return state_->found.geometry.chunk.empty() ? "direct, contiguous" : "direct, chunks that the library finds";
}

Status Hdf5Dataset::read_rows(std::uint64_t first, std::uint64_t count, std::span<std::byte> out) const {
    const auto& [file, found, id] = *state_;
    const Path& place = file->bytes.place;
    if (first > rows() || count > rows() - first)
        return Error{fmt::format("data set '{}' has {} rows; rows {} to {} are not there", found.description.name, rows(), first,
                                 first + count),
                     place.string()};
    std::uint64_t wanted = 0;
    if (__builtin_mul_overflow(count, row_bytes(), &wanted) || out.size() != wanted)
        return Error{fmt::format("data set '{}': {} rows of {} bytes do not fit {} bytes", found.description.name, count,
                                 row_bytes(), out.size()),
                     place.string()};
    MILLRACE_TRY(file->bytes.unchanged());
    if (wanted == 0) return base::ok();
    Status done = base::ok();
    if (!found.by_library.empty())
        done = read_by_library(id.get(), found, first, count, out, place);
    else if (found.geometry.chunk.empty())
        done = read_contiguous_rows(file->bytes, found.geometry, found.address, first, count, out);
    else
        done = read_chunked_rows(
            place, found.geometry,
            [&](const std::uint64_t* origin, Hdf5Chunk& chunk) {
                return fetch_chunk(id.get(), found, origin, chunk, file->bytes);
            },
            first, count, out);
    // A change explains a chunk that does not unpack, and taints one that does.
    MILLRACE_TRY(file->bytes.unchanged());
    return done;
}

}  // namespace millrace::io
