// hdf5_read [MEGABYTES] [FOLDER]: how fast rows come out of a gzip-4 file of float16 features, which it writes itself: by the
// HDF5 library and by io/hdf5.h with 1, 2, ... threads, medians of interleaved rounds; and how long a file of 32,768 chunks
// takes to open.

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <map>
#include <random>
#include <thread>

#include "io/hdf5.h"
#include "io/hdf5_library.h"

namespace {

using namespace millrace;
using Clock = std::chrono::steady_clock;

constexpr std::uint64_t kRowBytes = 40 * 2 * 64 * 2, kChunkRows = 16, kBlockRows = 256;
constexpr int kRounds = 7;

double seconds_since(Clock::time_point begin) { return std::chrono::duration<double>(Clock::now() - begin).count(); }

/// Levels in dB around a slope over 64 bands, as float16: -8 to -64, in steps that such numbers have.
std::vector<std::uint16_t> features(std::uint64_t rows, unsigned seed) {
    std::mt19937 random(seed);
    std::normal_distribution<float> noise(0, 3);
    std::vector<std::uint16_t> values(rows * kRowBytes / 2);
    for (std::size_t i = 0; i < values.size(); ++i) {
        const float level = std::clamp(20 + static_cast<float>(i % 64) / 4 + noise(random), 8.f, 63.f);
        int exponent = 0;
        const float mantissa = std::frexp(level, &exponent);
        values[i] = static_cast<std::uint16_t>(0x8000 | (exponent + 14) << 10 | static_cast<int>((mantissa * 2 - 1) * 1024));
    }
    return values;
}

base::Status write_features(const io::Path& path, std::uint64_t rows) {
    MILLRACE_LET(writer, io::Hdf5Writer::create(path));
    MILLRACE_LET(set, writer->add_dataset({.name = "mel",
                                           .type = io::ElementType::kF16,
                                           .dims = {rows, 40, 2, 64, 1},
                                           .chunk = {kChunkRows, 40, 2, 64, 1},
                                           .gzip = 4}));
    for (std::uint64_t row = 0; row < rows; row += kBlockRows) {
        const std::vector<std::uint16_t> block = features(std::min(kBlockRows, rows - row), static_cast<unsigned>(row));
        MILLRACE_TRY(writer->append(set, std::as_bytes(std::span(block))));
    }
    return writer->finish();
}

base::Status write_many_chunks(const io::Path& path, std::uint64_t chunks) {
    MILLRACE_LET(writer, io::Hdf5Writer::create(path));
    MILLRACE_LET(
        set, writer->add_dataset({.name = "x", .type = io::ElementType::kU8, .dims = {chunks, 64}, .chunk = {1, 64}, .gzip = 1}));
    MILLRACE_TRY(writer->append(set, std::vector<std::byte>(chunks * 64)));
    return writer->finish();
}

/// Seconds for all rows by `count` threads, each taking the next block.
base::Result<double> time_ours(const io::Hdf5Dataset& set, unsigned count) {
    std::atomic<std::uint64_t> next{0};
    std::atomic<bool> failed{false};
    const auto work = [&] {
        std::vector<std::byte> rows(kBlockRows * kRowBytes);
        for (std::uint64_t first = next.fetch_add(kBlockRows); first < set.rows(); first = next.fetch_add(kBlockRows)) {
            const std::uint64_t taken = std::min(kBlockRows, set.rows() - first);
            if (!set.read_rows(first, taken, std::span(rows).first(taken * kRowBytes)).ok()) failed = true;
        }
    };
    const auto begin = Clock::now();
    {
        std::vector<std::jthread> threads;
        for (unsigned i = 0; i < count; ++i) threads.emplace_back(work);
    }
    if (failed) return base::Error{"rows could not be read"};
    return seconds_since(begin);
}

/// The same by the library, which must give the rows that `set` gives.
base::Result<double> time_library(const io::Path& path, const io::Hdf5Dataset& set) {
    const io::Hdf5Lock lock;
    const auto begin = Clock::now();
    const io::Hdf5Handle access = io::hdf5_file_access(), file(::H5Fopen(path.c_str(), H5F_ACC_RDONLY, access.get()), ::H5Fclose);
    if (!file.valid()) return io::hdf5_error("cannot be opened", path);
    const io::Hdf5Handle mel(::H5Dopen2(file.get(), "mel", H5P_DEFAULT), ::H5Dclose), from(::H5Dget_space(mel.get()), ::H5Sclose);
    const io::Hdf5Handle type = io::hdf5_type_of(io::ElementType::kF16);
    std::vector<hsize_t> dims(5), start(5, 0);
    if (::H5Sget_simple_extent_dims(from.get(), dims.data(), nullptr) != 5 || dims[0] != set.rows())
        return io::hdf5_error("has another shape for the library", path);
    std::vector<std::byte> out(kBlockRows * kRowBytes), ours(out.size());
    for (; start[0] < set.rows(); start[0] += kBlockRows) {
        dims[0] = std::min<std::uint64_t>(kBlockRows, set.rows() - start[0]);
        const io::Hdf5Handle to(::H5Screate_simple(5, dims.data(), nullptr), ::H5Sclose);
        if (::H5Sselect_hyperslab(from.get(), H5S_SELECT_SET, start.data(), nullptr, dims.data(), nullptr) < 0 ||
            ::H5Dread(mel.get(), type.get(), to.get(), from.get(), H5P_DEFAULT, out.data()) < 0)
            return io::hdf5_error("cannot be read", path);
    }
    const double seconds = seconds_since(begin);
    const std::uint64_t last = dims[0] * kRowBytes;
    MILLRACE_TRY(set.read_rows(set.rows() - dims[0], dims[0], std::span(ours).first(last)));
    if (!std::equal(ours.begin(), ours.begin() + static_cast<std::ptrdiff_t>(last), out.begin()))
        return base::Error{"gives other rows than the library", path.string(), 1};
    return seconds;
}

double median(std::vector<double> values) {
    std::ranges::sort(values);
    return values[values.size() / 2];
}

base::Status measure(std::uint64_t megabytes, const io::Path& folder) {
    const io::Path path = folder / "hdf5_read.h5", many = folder / "hdf5_read_many.h5";
    const std::uint64_t rows = std::max<std::uint64_t>(megabytes * 1'000'000 / kRowBytes, 1);
    const auto megabytes_per_second = [&](double seconds) { return static_cast<double>(rows * kRowBytes) / 1e6 / seconds; };
    MILLRACE_TRY(write_features(path, rows));
    MILLRACE_LET(file, io::Hdf5File::open(path));
    MILLRACE_LET(set, file->dataset("mel"));
    fmt::print("{}, {} MB packed to {}: {}\n", set->description().text(), rows * kRowBytes / 1'000'000,
               std::filesystem::file_size(path) / 1'000'000, set->reading());
    std::vector<unsigned> counts;
    for (unsigned count = 1; count <= std::max(2u, std::thread::hardware_concurrency()); count *= 2) counts.push_back(count);
    std::map<unsigned, std::vector<double>> times;  // 0: the library
    for (int round = 0; round < kRounds; ++round) {
        MILLRACE_LET(library, time_library(path, *set));
        times[0].push_back(library);
        for (const unsigned count : counts) {
            MILLRACE_LET(ours, time_ours(*set, count));
            times[count].push_back(ours);
        }
    }
    fmt::print("library            {:7.0f} MB/s\n", megabytes_per_second(median(times[0])));
    for (const unsigned count : counts)
        fmt::print("ours, {:3} threads  {:7.0f} MB/s, {:.2f} of one\n", count, megabytes_per_second(median(times[count])),
                   median(times[1]) / median(times[count]));

    MILLRACE_TRY(write_many_chunks(many, 32768));
    std::vector<double> opened;
    for (int round = 0; round < kRounds; ++round) {
        const auto begin = Clock::now();
        MILLRACE_LET(large, io::Hdf5File::open(many));
        MILLRACE_LET(x, large->dataset("x"));
        opened.push_back(seconds_since(begin));
        if (round == 0) fmt::print("{}: ", x->reading());
    }
    fmt::print("opened in {:.1f} ms\n", median(opened) * 1e3);
    std::filesystem::remove(path);
    std::filesystem::remove(many);
    return base::ok();
}

}  // namespace

int main(int count, char** words) {
    const std::uint64_t megabytes = count > 1 ? std::strtoull(words[1], nullptr, 10) : 128;
    const auto done = measure(megabytes, count > 2 ? io::Path(words[2]) : std::filesystem::temp_directory_path());
    if (done.ok()) return 0;
    fmt::print(stderr, "hdf5_read: {}\n", done.error().text());
    return done.error().exit_status;
}
