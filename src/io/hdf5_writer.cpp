#include "io/hdf5.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "io/hdf5_library.h"
#include "io/pending_file.h"

namespace millrace::io {
namespace {

constexpr std::size_t kMostAxes = 32;                        // the format's own limit
constexpr std::uint64_t kLargestChunk = 0xffffffffu;         // bytes; likewise
constexpr std::size_t kLargestCache = std::size_t{1} << 28;  // bytes of chunks that are not full yet

struct OpenDataset {
    Hdf5Handle id, type;
    std::string name;
    std::vector<hsize_t> dims;  // [0]: rows now, or for good when it does not grow
    std::size_t row_bytes = 0;
    std::uint64_t written = 0;  // rows
    bool growing = false;
};

Error layout_error(const Path& place, const Hdf5Layout& layout, std::string_view what) {
    return Error{fmt::format("data set '{}' {}", layout.name, what), place.string()};
}

Status check_layout(const Hdf5Layout& layout, const Path& place) {
    const auto refuse = [&](std::string_view what) { return layout_error(place, layout, what); };
    if (layout.name.empty() || layout.name == "." || layout.name.find('/') != std::string::npos ||
        layout.name.find('\0') != std::string::npos)
        return refuse("needs a name without '/'");
    if (layout.dims.empty() || layout.dims.size() > kMostAxes)
        return refuse(fmt::format("has {} axes; 1 to {} are possible", layout.dims.size(), kMostAxes));
    std::uint64_t bytes = size_of(layout.type);
    for (std::size_t axis = layout.growing ? 1 : 0; axis < layout.dims.size(); ++axis) {
        if (axis > 0 && layout.dims[axis] == 0) return refuse("has an axis of no extent; only the rows may be none");
        if (layout.dims[axis] != 0 && (__builtin_mul_overflow(bytes, layout.dims[axis], &bytes) || bytes >> 62 != 0))
            return refuse(fmt::format("of shape [{}] is too large", fmt::join(layout.dims, ", ")));
    }
    if (layout.gzip < 0 || layout.gzip > 9) return refuse(fmt::format("has gzip level {}; 0 to 9 are possible", layout.gzip));
    if (layout.chunk.empty()) {
        if (layout.growing || layout.gzip > 0 || layout.shuffle) return refuse("needs chunks to grow or to be compressed");
        return base::ok();
    }
    if (layout.chunk.size() != layout.dims.size())
        return refuse(fmt::format("has {} axes and chunks of {}", layout.dims.size(), layout.chunk.size()));
    bytes = size_of(layout.type);
    for (std::size_t axis = 0; axis < layout.chunk.size(); ++axis) {
        const bool fits = axis == 0 || layout.chunk[axis] <= layout.dims[axis];
        if (layout.chunk[axis] == 0 || !fits || __builtin_mul_overflow(bytes, layout.chunk[axis], &bytes) ||
            bytes > kLargestChunk)
            return refuse(fmt::format("of shape [{}] cannot have chunks of [{}]: 1 to the axis' extent, below 4 GiB",
                                      fmt::join(layout.dims, ", "), fmt::join(layout.chunk, ", ")));
    }
    return base::ok();
}

/// Bytes of the chunks that one row touches: they stay in memory until they are full.
std::size_t open_chunk_bytes(const Hdf5Layout& layout) {
    std::uint64_t bytes = size_of(layout.type) * layout.chunk[0];
    for (std::size_t axis = 1; axis < layout.chunk.size(); ++axis) {
        const std::uint64_t along = (layout.dims[axis] + layout.chunk[axis] - 1) / layout.chunk[axis] * layout.chunk[axis];
        if (__builtin_mul_overflow(bytes, along, &bytes)) return kLargestCache;
    }
    return std::clamp<std::uint64_t>(bytes, std::size_t{1} << 20, kLargestCache);
}

bool set_chunks(const Hdf5Layout& layout, const std::vector<hsize_t>& chunk, hid_t creation, hid_t access) {
    constexpr std::size_t kSlots = 12421;  // of the cache's hash table: a prime
    return ::H5Pset_chunk(creation, static_cast<int>(chunk.size()), chunk.data()) >= 0 &&
           (!layout.shuffle || ::H5Pset_shuffle(creation) >= 0) &&
           (layout.gzip == 0 || ::H5Pset_deflate(creation, static_cast<unsigned>(layout.gzip)) >= 0) &&
           ::H5Pset_chunk_cache(access, kSlots, open_chunk_bytes(layout), 1.0) >= 0;
}

class LibraryWriter final : public Hdf5Writer {
public:
    explicit LibraryWriter(PendingFile to) : pending_(std::move(to)) {}
    ~LibraryWriter() override { abandon(); }
    Status open();
    Result<std::size_t> add_dataset(const Hdf5Layout& layout) override;
    Status append(std::size_t dataset, Bytes rows) override;
    Status set_attribute(std::string_view name, std::string_view text) override;
    Status finish() override;

private:
    [[nodiscard]] const Path& place() const { return pending_.path(); }
    /// Data sets before their file: the library keeps a file open as long as one of them is.
    bool close_all() {
        bool closed = true;
        for (OpenDataset& dataset : datasets_) closed = dataset.id.close() && closed;
        datasets_.clear();
        return file_.close() && closed;
    }
    void abandon() {
        close_all();
        pending_.discard();
    }
    Error fail(Error reason) {
        failed_ = std::move(reason);
        abandon();
        return *failed_;
    }
    Status append(OpenDataset& dataset, Bytes rows, std::uint64_t count);

    PendingFile pending_;
    Hdf5Handle file_;
    std::vector<OpenDataset> datasets_;
    std::optional<Error> failed_;
};

Status LibraryWriter::open() {
    // The library's own words for a folder that is missing or not writable are of no use.
    MILLRACE_TRY(open_file(pending_.temporary(), O_WRONLY | O_CREAT | O_EXCL));
    const Hdf5Lock lock;
    const Hdf5Handle access = hdf5_file_access();
    if (!access.valid()) return hdf5_error("cannot be set up", place());
    file_ = Hdf5Handle(::H5Fcreate(pending_.temporary().c_str(), H5F_ACC_TRUNC, H5P_DEFAULT, access.get()), ::H5Fclose);
    return file_.valid() ? base::ok() : Status{fail(hdf5_error("cannot be created", place()))};
}

Result<std::size_t> LibraryWriter::add_dataset(const Hdf5Layout& layout) {
    if (failed_) return *failed_;
    MILLRACE_TRY(check_layout(layout, place()));
    for (const OpenDataset& other : datasets_)
        if (other.name == layout.name) return layout_error(place(), layout, "exists already");
    const Hdf5Lock lock;
    OpenDataset made;
    made.type = hdf5_type_of(layout.type);
    if (!made.type.valid())
        return layout_error(place(), layout, fmt::format("has type {}, which HDF5 lacks", name_of(layout.type)));
    made.name = layout.name;
    made.growing = layout.growing;
    made.dims.assign(layout.dims.begin(), layout.dims.end());
    if (layout.growing) made.dims[0] = 0;
    made.row_bytes = size_of(layout.type);
    for (std::size_t axis = 1; axis < layout.dims.size(); ++axis) made.row_bytes *= layout.dims[axis];
    std::vector<hsize_t> most = made.dims;
    if (layout.growing) most[0] = H5S_UNLIMITED;

    const Hdf5Handle creation(::H5Pcreate(H5P_DATASET_CREATE), ::H5Pclose), access(::H5Pcreate(H5P_DATASET_ACCESS), ::H5Pclose);
    const Hdf5Handle space(::H5Screate_simple(static_cast<int>(most.size()), made.dims.data(), most.data()), ::H5Sclose);
    const std::vector<hsize_t> chunk(layout.chunk.begin(), layout.chunk.end());
    const bool set_up = creation.valid() && access.valid() && space.valid() &&
                        (chunk.empty() || set_chunks(layout, chunk, creation.get(), access.get()));
    if (set_up)
        made.id = Hdf5Handle(::H5Dcreate2(file_.get(), layout.name.c_str(), made.type.get(), space.get(), H5P_DEFAULT,
                                          creation.get(), access.get()),
                             ::H5Dclose);
    if (!made.id.valid()) return fail(hdf5_error(fmt::format("data set '{}' cannot be created", layout.name), place()));
    datasets_.push_back(std::move(made));
    return datasets_.size() - 1;
}

Status LibraryWriter::append(OpenDataset& dataset, Bytes rows, std::uint64_t count) {
    const Hdf5Lock lock;
    if (dataset.growing) {
        dataset.dims[0] = dataset.written + count;
        if (::H5Dset_extent(dataset.id.get(), dataset.dims.data()) < 0)
            return hdf5_error(fmt::format("data set '{}' cannot grow", dataset.name), place());
    }
    std::vector<hsize_t> start(dataset.dims.size(), 0), extent = dataset.dims;
    start[0] = dataset.written;
    extent[0] = count;
    const Hdf5Handle from(::H5Screate_simple(static_cast<int>(extent.size()), extent.data(), nullptr), ::H5Sclose);
    const Hdf5Handle to(::H5Dget_space(dataset.id.get()), ::H5Sclose);
    if (!from.valid() || !to.valid() ||
        ::H5Sselect_hyperslab(to.get(), H5S_SELECT_SET, start.data(), nullptr, extent.data(), nullptr) < 0 ||
        ::H5Dwrite(dataset.id.get(), dataset.type.get(), from.get(), to.get(), H5P_DEFAULT, rows.data()) < 0)
        return hdf5_error(fmt::format("data set '{}' cannot be written", dataset.name), place());
    dataset.written += count;
    return base::ok();
}

Status LibraryWriter::append(std::size_t dataset, Bytes rows) {
    if (failed_) return *failed_;
    MILLRACE_ASSERT(dataset < datasets_.size(), "no such data set");
    OpenDataset& to = datasets_[dataset];
    if (rows.size() % to.row_bytes != 0)
        return Error{fmt::format("data set '{}' has rows of {} bytes; {} bytes are no whole number of them", to.name,
                                 to.row_bytes, rows.size()),
                     place().string()};
    const std::uint64_t count = rows.size() / to.row_bytes;
    if (!to.growing && count > to.dims[0] - to.written)
        return Error{fmt::format("data set '{}' has room for {} rows, not for {}", to.name, to.dims[0], to.written + count),
                     place().string()};
    if (count == 0) return base::ok();
    if (const Status written = append(to, rows, count); !written.ok()) return fail(written.error());
    return base::ok();
}

Status LibraryWriter::set_attribute(std::string_view name, std::string_view text) {
    if (failed_) return *failed_;
    if (name.empty() || name.find('\0') != std::string_view::npos || text.find('\0') != std::string_view::npos)
        return Error{fmt::format("attribute '{}' needs a name, and name and text without NUL", name), place().string()};
    const Hdf5Lock lock;
    const std::string key(name), value(text);
    const hid_t file = file_.get();
    const Hdf5Handle type(::H5Tcopy(H5T_C_S1), ::H5Tclose), space(::H5Screate(H5S_SCALAR), ::H5Sclose);
    bool written = ::H5Tset_size(type.get(), H5T_VARIABLE) >= 0 && ::H5Tset_cset(type.get(), H5T_CSET_UTF8) >= 0;
    const htri_t exists = ::H5Aexists(file, key.c_str());
    written = written && exists >= 0 && (exists == 0 || ::H5Adelete(file, key.c_str()) >= 0);
    if (written) {
        const Hdf5Handle attribute(::H5Acreate2(file, key.c_str(), type.get(), space.get(), H5P_DEFAULT, H5P_DEFAULT),
                                   ::H5Aclose);
        const char* const pointer = value.c_str();
        written = attribute.valid() && ::H5Awrite(attribute.get(), type.get(), &pointer) >= 0;
    }
    if (!written) return fail(hdf5_error(fmt::format("attribute '{}' cannot be written", name), place()));
    return base::ok();
}

Status LibraryWriter::finish() {
    if (failed_) return *failed_;
    MILLRACE_ASSERT(file_.valid(), "finished twice");
    for (const OpenDataset& dataset : datasets_)
        if (!dataset.growing && dataset.written != dataset.dims[0])
            return fail(Error{fmt::format("data set '{}' has {} rows of {}; append the others first", dataset.name,
                                          dataset.written, dataset.dims[0]),
                              place().string()});
    const Hdf5Lock lock;
    if (::H5Fflush(file_.get(), H5F_SCOPE_GLOBAL) < 0) return fail(hdf5_error("cannot be written", place()));
    if (!close_all()) return fail(hdf5_error("cannot be written", place()));
    return pending_.commit();
}

}  // namespace

Result<std::unique_ptr<Hdf5Writer>> Hdf5Writer::create(const Path& path) {
    MILLRACE_LET(pending, PendingFile::begin(path));
    auto writer = std::make_unique<LibraryWriter>(std::move(pending));
    MILLRACE_TRY(writer->open());
    return std::unique_ptr<Hdf5Writer>(std::move(writer));
}

}  // namespace millrace::io
