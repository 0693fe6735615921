#include "data/recordings/recording_set.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <numeric>
#include <sstream>

#include "base/philox.h"
#include "data/folder.h"
#include "data/sound/sound_set.h"
#include "io/hdf5.h"
#include "io/pending_file.h"

namespace millrace::data {
namespace {

namespace fs = std::filesystem;

constexpr std::uint64_t kPieceBytes = std::uint64_t{64} << 20;

/// Where the recordings of the copy come from.
using Order = std::vector<std::uint32_t>;

Order draw_order(std::uint64_t count, std::uint64_t seed) {
    const base::Shuffle shuffle = base::make_shuffle(seed, 0, static_cast<std::uint32_t>(count));
    Order order(count);
    for (std::uint32_t i = 0; i < order.size(); ++i) order[i] = base::shuffled_index(shuffle, i);
    return order;
}

bool has_a_row_per_recording(const io::Hdf5Description& set) { return set.name == "labels" || set.name.starts_with("segments"); }

/// Reads the recordings `wanted`, in their order. What lies in one chunk is read together: a chunk is unpacked as a whole.
Status read_piece(const io::Hdf5Dataset& set, std::span<const std::uint32_t> wanted, std::span<std::byte> out) {
    const std::uint64_t row = set.row_bytes();
    const std::uint64_t chunk = set.description().chunk.empty() ? 1 : set.description().chunk[0];
    std::vector<std::uint32_t> by_source(wanted.size());
    std::iota(by_source.begin(), by_source.end(), 0u);
    std::ranges::sort(by_source, {}, [&](std::uint32_t i) { return wanted[i]; });
    std::vector<std::byte> rows;
    for (std::size_t begin = 0, end = 0; begin < by_source.size(); begin = end) {
        const std::uint64_t first = wanted[by_source[begin]];
        while (end < by_source.size() && wanted[by_source[end]] / chunk == first / chunk) ++end;
        const std::uint64_t count = wanted[by_source[end - 1]] - first + 1;
        rows.resize(count * row);
        MILLRACE_TRY(set.read_rows(first, count, rows));
        for (std::size_t i = begin; i < end; ++i)
            std::memcpy(out.data() + by_source[i] * row, rows.data() + (wanted[by_source[i]] - first) * row, row);
    }
    return base::ok();
}

/// Copies a data set, its rows in the given order.
Status copy_set(const io::Hdf5Dataset& from, io::Hdf5Writer& to, std::size_t number, std::span<const std::uint32_t> order,
                StopRequests& stop, const std::function<void(std::uint64_t)>& copied) {
    const std::uint64_t piece = std::max<std::uint64_t>(1, kPieceBytes / std::max<std::uint64_t>(1, from.row_bytes()));
    std::vector<std::byte> rows;
    for (std::uint64_t first = 0; first < order.size(); first += piece) {
        if (stop.asked()) return stop.error();
        const auto wanted = order.subspan(first, std::min<std::uint64_t>(piece, order.size() - first));
        rows.resize(wanted.size() * from.row_bytes());
        MILLRACE_TRY(read_piece(from, wanted, rows));
        MILLRACE_TRY(to.append(number, rows));
        copied(wanted.size());
    }
    return base::ok();
}

io::Hdf5Layout layout_of(const io::Hdf5Description& set) {
    const auto has = [&](const char* filter) { return std::ranges::find(set.filters, filter) != set.filters.end(); };
    io::Hdf5Layout layout{.name = set.name, .type = *set.type, .dims = set.dims, .chunk = set.chunk};
    layout.gzip = has("gzip") ? 4 : 0;
    layout.shuffle = has("shuffle");
    return layout;
}

Status pack_training(const io::Hdf5File& from, const Path& path, const Order& order, StopRequests& stop,
                     const CommandProgress& progress) {
    MILLRACE_LET(to, io::Hdf5Writer::create(path));
    std::uint64_t done = 0, total = 0;
    for (const io::Hdf5Description& set : from.datasets()) total += has_a_row_per_recording(set) ? order.size() : 0;
    for (const io::Hdf5Description& set : from.datasets()) {
        MILLRACE_LET(source, from.dataset(set.name));
        MILLRACE_LET(number, to->add_dataset(layout_of(set)));
        if (has_a_row_per_recording(set)) {
            MILLRACE_TRY(copy_set(*source, *to, number, order, stop, [&](std::uint64_t rows) {
                done += rows;
                if (progress) progress(done, total);
            }));
        } else {
            Order as_it_is(source->rows());
            std::iota(as_it_is.begin(), as_it_is.end(), 0u);
            MILLRACE_TRY(copy_set(*source, *to, number, as_it_is, stop, [](std::uint64_t) {}));
        }
    }
    for (const auto& [name, text] : from.attributes()) MILLRACE_TRY(to->set_attribute(name, text));
    return to->finish();
}

/// recordings.csv says which row a recording has: path, class, split, row, note.
std::string renumbered(const std::string& list, const Order& order) {
    constexpr std::string_view kSplit = ",training,";
    std::vector<std::size_t> row_of(order.size());
    for (std::size_t i = 0; i < order.size(); ++i) row_of[order[i]] = i;
    std::istringstream lines(list);
    std::string text;
    for (std::string line; std::getline(lines, line); text += line + "\n") {
        const std::size_t at = line.rfind(kSplit);
        if (at == std::string::npos) continue;
        const std::size_t begin = at + kSplit.size(), end = line.find(',', begin);
        const std::string digits = line.substr(begin, end - begin);
        if (digits.empty() || digits.size() > 9 || digits.find_first_not_of("0123456789") != std::string::npos) continue;
        if (const std::size_t row = std::stoul(digits); row < row_of.size())
            line.replace(begin, digits.size(), std::to_string(row_of[row]));
    }
    return text;
}

Status copy_unchanged(const Path& from, const Path& to) {
    std::error_code failed;
    if (!fs::copy_file(from, to, failed) || failed)
        return Error{fmt::format("cannot be copied to {}: {}", to.string(), failed.message()), from.string(), 1};
    return base::ok();
}

}  // namespace

Result<std::string> pack_recordings(const Path& in, const Path& out, std::uint64_t seed, const CommandProgress& progress) {
    std::error_code ignored;
    MILLRACE_TRY(io::StagedFolder::finish_publishing(out, kRecordingFiles[0]));
    for (const char* name : kRecordingFiles)
        if (fs::exists(out / name, ignored)) return foreign_set(out / name);
    MILLRACE_LET(file, io::Hdf5File::open(in / kRecordingFiles[0]));
    const io::Hdf5Description* labels = file->find("labels");
    if (labels == nullptr || labels->dims.size() != 1 || labels->dims[0] == 0 || labels->dims[0] > (1u << 30))
        return Error{"there is no data set labels with one row per recording; `millrace data build-leak` writes such files",
                     (in / kRecordingFiles[0]).string()};
    for (const io::Hdf5Description& set : file->datasets()) {
        if (!set.type) return Error{fmt::format("data set {} cannot be copied", set.text()), (in / kRecordingFiles[0]).string()};
        if (has_a_row_per_recording(set) && (set.dims.empty() || set.dims[0] != labels->dims[0]))
            return Error{fmt::format("{}; one row for each of the {} recordings would be right", set.text(), labels->dims[0]),
                         (in / kRecordingFiles[0]).string()};
    }
    StopRequests stop;
    MILLRACE_LET(staged, io::StagedFolder::begin(out));
    const Order order = draw_order(labels->dims[0], seed);
    MILLRACE_TRY(pack_training(*file, staged.inside() / kRecordingFiles[0], order, stop, progress));
    for (const char* name : {kRecordingFiles[1], kRecordingFiles[2]})
        if (fs::exists(in / name, ignored)) MILLRACE_TRY(copy_unchanged(in / name, staged.inside() / name));
    if (fs::exists(in / kRecordingList, ignored)) {
        MILLRACE_LET(list, io::read_text(in / kRecordingList));
        MILLRACE_TRY(io::write_atomically(staged.inside() / kRecordingList, renumbered(list, order)));
    }
    if (stop.asked()) return stop.error();
    MILLRACE_TRY(staged.publish(kRecordingFiles[0]));
    return fmt::format("{} written: {} training recordings in random order, seed {}", out.string(), order.size(), seed);
}

}  // namespace millrace::data
