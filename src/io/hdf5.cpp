#include "io/hdf5.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "io/hdf5_library.h"

namespace millrace::io {
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

class LibraryFile final : public Hdf5File, public std::enable_shared_from_this<LibraryFile> {
public:
    Status read(const Path& path);
    [[nodiscard]] const std::vector<Hdf5Description>& datasets() const override { return datasets_; }
    [[nodiscard]] const Hdf5Description* find(std::string_view name) const override;
    [[nodiscard]] const std::map<std::string, std::string, std::less<>>& attributes() const override { return attributes_; }
    [[nodiscard]] Result<std::string> attribute(std::string_view name) const override;
    [[nodiscard]] Result<std::shared_ptr<const Hdf5Dataset>> dataset(std::string_view name) const override;
    [[nodiscard]] const Hdf5Bytes& bytes() const { return bytes_; }

private:
    Hdf5Bytes bytes_;
    Hdf5Handle file_;
    std::vector<Hdf5Description> datasets_;
    std::map<std::string, std::string, std::less<>> attributes_;
};

class LibraryDataset final : public Hdf5Dataset {
public:
    LibraryDataset(std::shared_ptr<const LibraryFile> file, Hdf5Found found, Hdf5Handle id)
        : file_(std::move(file)), found_(std::move(found)), id_(std::move(id)) {}
    [[nodiscard]] const Hdf5Description& description() const override { return found_.description; }
    [[nodiscard]] std::uint64_t row_bytes() const override { return found_.geometry.row_bytes(); }
    [[nodiscard]] bool direct() const override { return found_.by_library.empty(); }
    [[nodiscard]] std::string reading() const override;
    Status read_rows(std::uint64_t first, std::uint64_t count, std::span<std::byte> out) const override;

private:
    std::shared_ptr<const LibraryFile> file_;
    Hdf5Found found_;
    Hdf5Handle id_;
};

const Hdf5Description* LibraryFile::find(std::string_view name) const {
    const auto at = std::ranges::find(datasets_, name, &Hdf5Description::name);
    return at != datasets_.end() ? &*at : nullptr;
}

Status LibraryFile::read(const Path& path) {
    MILLRACE_SET(bytes_, Hdf5Bytes::open(path));
    const Hdf5Lock lock;
    const Hdf5Handle access = hdf5_file_access();
    if (!access.valid()) return hdf5_error("cannot be set up", path);
    file_ = Hdf5Handle(::H5Fopen(path.c_str(), H5F_ACC_RDONLY, access.get()), ::H5Fclose);
    if (!file_.valid()) return hdf5_error("is no HDF5 file that can be read", path);
    const Hdf5Handle creation(::H5Fget_create_plist(file_.get()), ::H5Pclose);
    hsize_t user_block = 0;
    if (!creation.valid() || ::H5Pget_userblock(creation.get(), &user_block) < 0) return hdf5_error("cannot be described", path);
    bytes_.base = user_block;
    MILLRACE_LET(names, dataset_names(file_.get(), path));
    for (const std::string& name : names) {
        MILLRACE_LET(found, describe_dataset(file_.get(), name, bytes_));
        datasets_.push_back(std::move(found.description));
    }
    MILLRACE_SET(attributes_, read_attributes(file_.get(), path));
    MILLRACE_TRY(bytes_.still_at_place());
    return bytes_.unchanged();
}

Result<std::string> LibraryFile::attribute(std::string_view name) const {
    const auto at = attributes_.find(name);
    if (at != attributes_.end()) return at->second;
    std::vector<std::string_view> names;
    for (const auto& [key, value] : attributes_) names.push_back(key);
    return absent("text attribute", name, names, bytes_.place);
}

Result<std::shared_ptr<const Hdf5Dataset>> LibraryFile::dataset(std::string_view name) const {
    const Path& place = bytes_.place;
    if (find(name) == nullptr) {
        std::vector<std::string_view> names;
        for (const Hdf5Description& other : datasets_) names.push_back(other.name);
        return absent("data set", name, names, place);
    }
    MILLRACE_TRY(bytes_.unchanged());
    const Hdf5Lock lock;
    MILLRACE_LET(found, describe_dataset(file_.get(), std::string(name), bytes_));
    Hdf5Handle id(::H5Dopen2(file_.get(), found.description.name.c_str(), H5P_DEFAULT), ::H5Dclose);
    if (!id.valid()) return hdf5_error(fmt::format("data set '{}' cannot be opened", name), place);
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
    return std::shared_ptr<const Hdf5Dataset>(
        std::make_shared<LibraryDataset>(shared_from_this(), std::move(found), std::move(id)));
}

std::string LibraryDataset::reading() const {
    if (!direct()) return "by the library: " + found_.by_library;
    return found_.geometry.chunk.empty() ? "direct, contiguous" : "direct, chunks that the library finds";
}

Status LibraryDataset::read_rows(std::uint64_t first, std::uint64_t count, std::span<std::byte> out) const {
    const Hdf5Bytes& bytes = file_->bytes();
    if (first > rows() || count > rows() - first)
        return Error{fmt::format("data set '{}' has {} rows; rows {} to {} are not there", found_.description.name, rows(), first,
                                 first + count),
                     bytes.place.string()};
    std::uint64_t wanted = 0;
    if (__builtin_mul_overflow(count, row_bytes(), &wanted) || out.size() != wanted)
        return Error{fmt::format("data set '{}': {} rows of {} bytes do not fit {} bytes", found_.description.name, count,
                                 row_bytes(), out.size()),
                     bytes.place.string()};
    MILLRACE_TRY(bytes.unchanged());
    if (wanted == 0) return base::ok();
    Status done = base::ok();
    if (!direct())
        done = read_by_library(id_.get(), found_, first, count, out, bytes.place);
    else if (found_.geometry.chunk.empty())
        done = read_contiguous_rows(bytes, found_.geometry, found_.address, first, count, out);
    else
        done = read_chunked_rows(
            bytes.place, found_.geometry,
            [&](const std::uint64_t* origin, Hdf5Chunk& chunk) { return fetch_chunk(id_.get(), found_, origin, chunk, bytes); },
            first, count, out);
    // A change explains a chunk that does not unpack, and taints one that does.
    MILLRACE_TRY(bytes.unchanged());
    return done;
}

}  // namespace

std::string Hdf5Description::text() const {
    std::string out = fmt::format("{} [{}] {}", name, fmt::join(dims, ", "), type_text);
    if (!chunk.empty()) out += fmt::format(", chunks of [{}]", fmt::join(chunk, ", "));
    for (const std::string& filter : filters) out += ", " + filter;
    return out;
}

Result<std::shared_ptr<const Hdf5File>> Hdf5File::open(const Path& path) {
    auto file = std::make_shared<LibraryFile>();
    MILLRACE_TRY(file->read(path));
    return std::shared_ptr<const Hdf5File>(std::move(file));
}

}  // namespace millrace::io
