#include "io/hdf5.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <random>
#include <thread>

#include "temporary_folder.h"

namespace millrace::io {
namespace {

/// Files of h5py (hdf5_files.py), written once for all tests; empty without h5py.
const Path& h5py_files() {
    static const test::TemporaryFolder folder;
    static const Path path = [] {
        for (const std::string python : {"python3", "/usr/bin/python3"}) {
            if (std::system((python + " -c 'import h5py' 2> /dev/null").c_str()) != 0) continue;
            const std::string script =
                fmt::format("{} {}/tests/io/hdf5_files.py {}", python, MILLRACE_SOURCE_ROOT, folder.path().string());
            EXPECT_EQ(std::system(script.c_str()), 0);
            return folder.path();
        }
        return Path{};
    }();
    return path;
}

std::vector<std::byte> expected_rows(const std::string& file, std::string name) {
    std::replace(name.begin(), name.end(), '/', '-');
    return *read_file(h5py_files() / fmt::format("{}.{}.bin", file, name));
}

bool equal_bytes(Bytes a, Bytes b) { return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size()) == 0; }

class Hdf5OfOthers : public ::testing::TestWithParam<const char*> {
protected:
    void SetUp() override {
        if (!have_hdf5()) GTEST_SKIP() << "built without HDF5";
        if (h5py_files().empty()) GTEST_SKIP() << "no h5py";
    }
    [[nodiscard]] std::string name() const { return GetParam(); }
    [[nodiscard]] Path path() const { return h5py_files() / (name() + ".h5"); }
};
INSTANTIATE_TEST_SUITE_P(Formats, Hdf5OfOthers, ::testing::Values("old", "new", "block"),
                         [](const auto& about) { return std::string(about.param); });

TEST_P(Hdf5OfOthers, AllRowsAreTheLibrarys) {
    const auto file = Hdf5File::open(path());
    ASSERT_TRUE(file.ok()) << file.error().text();
    std::size_t direct = 0;
    for (const Hdf5Description& about : (*file)->datasets()) {
        if (!about.type || about.dims.empty() || about.name == "lzf") continue;
        const auto dataset = (*file)->dataset(about.name);
        ASSERT_TRUE(dataset.ok()) << dataset.error().text();
        EXPECT_EQ((*dataset)->direct(), !about.name.starts_with("library_")) << about.text() << ": " << (*dataset)->reading();
        direct += (*dataset)->direct() ? 1 : 0;
        std::vector<std::byte> all((*dataset)->rows() * (*dataset)->row_bytes(), std::byte{0xa5});
        const Status read = (*dataset)->read_rows(0, (*dataset)->rows(), all);
        ASSERT_TRUE(read.ok()) << read.error().text();
        EXPECT_TRUE(equal_bytes(all, expected_rows(name(), about.name))) << about.text() << ": " << (*dataset)->reading();
    }
    EXPECT_GT(direct, 240u);
}

TEST_P(Hdf5OfOthers, RandomRangesFromFourThreads) {
    const auto file = Hdf5File::open(path());
    ASSERT_TRUE(file.ok()) << file.error().text();
    std::vector<std::shared_ptr<const Hdf5Dataset>> sets;
    std::vector<std::vector<std::byte>> wanted;
    for (const Hdf5Description& about : (*file)->datasets()) {
        if (!about.type || about.dims.empty() || about.name == "lzf") continue;
        sets.push_back(*(*file)->dataset(about.name));
        wanted.push_back(expected_rows(name(), about.name));
    }
    std::vector<std::string> wrong(4);
    std::vector<std::jthread> threads;
    for (unsigned thread = 0; thread < 4; ++thread)
        threads.emplace_back([&, thread] {
            std::mt19937 random(thread);
            for (int round = 0; round < 3000; ++round) {
                const std::size_t which = random() % sets.size();
                const Hdf5Dataset& set = *sets[which];
                const std::uint64_t first = random() % (set.rows() + 1),
                                    count = random() % (std::min<std::uint64_t>(set.rows() - first, 40) + 1);
                std::vector<std::byte> rows(count * set.row_bytes());
                const Status read = set.read_rows(first, count, rows);
                const Bytes right = Bytes(wanted[which]).subspan(first * set.row_bytes(), rows.size());
                if (!read.ok() || !equal_bytes(rows, right))
                    wrong[thread] = fmt::format("{} rows {} + {}: {}", set.description().text(), first, count,
                                                read.ok() ? "differ" : read.error().text());
            }
        });
    threads.clear();
    for (const std::string& text : wrong) EXPECT_EQ(text, "");
}

TEST_P(Hdf5OfOthers, IsDescribed) {
    const auto file = Hdf5File::open(path());
    ASSERT_TRUE(file.ok()) << file.error().text();
    EXPECT_EQ(*(*file)->attribute("config_json"),
              "{\"name\": \"Stra\xc3\x9f"
              "e\"}");
    EXPECT_EQ(*(*file)->attribute("fixed"), "fixed text");
    EXPECT_EQ(*(*file)->attribute("rate"), "4096");
    EXPECT_EQ(*(*file)->attribute("scale"), "0.25");
    const auto missing = (*file)->attribute("labels_json");
    ASSERT_FALSE(missing.ok());
    EXPECT_NE(missing.error().text().find("config_json, fixed"), std::string::npos) << missing.error().text();
    EXPECT_EQ((*file)->find("shuffled_prime_0")->text(), "shuffled_prime_0 [101, 7] F16, chunks of [10, 3], shuffle, gzip");
    EXPECT_EQ((*file)->find("library_big_endian")->type_text, "big-endian F32");
    EXPECT_NE((*file)->find("inner/deep"), nullptr);
    const auto text = (*file)->dataset("text"), scalar = (*file)->dataset("scalar"), absent = (*file)->dataset("labels");
    EXPECT_NE(text.error().message.find("holds text"), std::string::npos);
    EXPECT_NE((*file)->dataset("lzf").error().message.find("packed by 'lzf'"), std::string::npos);
    EXPECT_NE(scalar.error().message.find("single value"), std::string::npos);
    EXPECT_NE(absent.error().message.find("has no data set 'labels'; it has: "), std::string::npos);
    EXPECT_EQ(absent.error().place, path().string());
    EXPECT_EQ((*(*file)->dataset("many"))->reading(), "direct, chunks that the library finds");
    EXPECT_EQ((*(*file)->dataset("plain_prime_0"))->reading(), "direct, contiguous");
}

TEST_P(Hdf5OfOthers, RangesAndSizesAreChecked) {
    const auto file = Hdf5File::open(path());
    ASSERT_TRUE(file.ok());
    const auto dataset = (*file)->dataset("gzip_prime_0");
    std::vector<std::byte> bytes(14);
    EXPECT_TRUE((*dataset)->read_rows(100, 1, bytes).ok());
    EXPECT_TRUE((*dataset)->read_rows(101, 0, {}).ok());
    EXPECT_FALSE((*dataset)->read_rows(101, 1, bytes).ok());
    EXPECT_FALSE((*dataset)->read_rows(0, 2, bytes).ok());
    EXPECT_FALSE((*dataset)->read_rows(~0ull, 1, bytes).ok());
    EXPECT_FALSE((*dataset)->read_rows(1, ~0ull, bytes).ok());
}

struct Written {
    std::vector<std::uint16_t> values;  // [rows, 6]
    Path path;
};

/// 64 rows of 6 numbers in chunks of 5 x 4.
Written write_sample(const Path& path, bool shuffle) {
    Written sample{std::vector<std::uint16_t>(64 * 6), path};
    for (std::size_t i = 0; i < sample.values.size(); ++i) sample.values[i] = static_cast<std::uint16_t>(i * 37);
    auto writer = Hdf5Writer::create(path);
    EXPECT_TRUE(writer.ok());
    const auto set = (*writer)->add_dataset({.name = "x",
                                             .type = ElementType::kF16,
                                             .dims = {0, 6},
                                             .growing = true,
                                             .chunk = {5, 4},
                                             .gzip = 4,
                                             .shuffle = shuffle});
    const auto plain = (*writer)->add_dataset({.name = "plain", .type = ElementType::kF16, .dims = {64, 6}});
    const Bytes bytes = std::as_bytes(std::span(sample.values));
    // Blocks that end inside chunks.
    for (std::size_t row = 0; row < 64; row += 7)
        EXPECT_TRUE((*writer)->append(*set, bytes.subspan(row * 12, std::min<std::size_t>(7, 64 - row) * 12)).ok());
    EXPECT_TRUE((*writer)->append(*plain, bytes).ok());
    EXPECT_TRUE((*writer)->finish().ok());
    return sample;
}

/// What reading all of data set x says; empty: that the rows are right or differ.
std::string error_of(const Path& path, std::string_view name = "x") {
    const auto file = Hdf5File::open(path);
    if (!file.ok()) return file.error().text();
    const auto set = (*file)->dataset(name);
    if (!set.ok()) return set.error().text();
    std::vector<std::byte> rows(std::min<std::uint64_t>((*set)->rows() * (*set)->row_bytes(), 1u << 20));
    const std::uint64_t count = (*set)->row_bytes() == 0 ? 0 : rows.size() / (*set)->row_bytes();
    rows.resize(count * (*set)->row_bytes());
    const Status read = (*set)->read_rows(0, count, rows);
    return read.ok() ? "" : read.error().text();
}

TEST(Hdf5, WrittenRowsReadBack) {
    if (!have_hdf5()) GTEST_SKIP() << "built without HDF5";
    const test::TemporaryFolder folder;
    for (const bool shuffle : {false, true}) {
        const Written sample = write_sample(folder / "a.h5", shuffle);
        const auto file = Hdf5File::open(sample.path);
        ASSERT_TRUE(file.ok()) << file.error().text();
        for (const char* name : {"x", "plain"}) {
            const auto set = (*file)->dataset(name);
            ASSERT_TRUE(set.ok()) << set.error().text();
            EXPECT_TRUE((*set)->direct()) << (*set)->reading();
            for (std::uint64_t first = 0; first <= 64; ++first)
                for (std::uint64_t count = 0; count <= 64 - first; count += 3) {
                    std::vector<std::byte> rows(count * 12);
                    ASSERT_TRUE((*set)->read_rows(first, count, rows).ok());
                    ASSERT_TRUE(equal_bytes(rows, std::as_bytes(std::span(sample.values).subspan(first * 6, count * 6))))
                        << first << " " << count;
                }
        }
    }
}

TEST(Hdf5, TruncatedAndForeignFilesAreErrors) {
    if (!have_hdf5()) GTEST_SKIP() << "built without HDF5";
    const test::TemporaryFolder folder;
    const std::vector<std::byte> whole = *read_file(write_sample(folder / "a.h5", true).path);
    for (std::size_t size = 0; size < whole.size(); size += 97) {
        ASSERT_TRUE(write_atomically(folder / "b.h5", Bytes(whole).first(size)).ok());
        const std::string error = error_of(folder / "b.h5");
        EXPECT_NE(error.find("b.h5"), std::string::npos) << size << ": " << error;
    }
    EXPECT_NE(error_of(folder / "none.h5").find("No such file"), std::string::npos);
    EXPECT_NE(error_of(folder.path()).find("no regular file"), std::string::npos);
}

TEST(Hdf5, ChunkThatDoesNotUnpackIsNamed) {
    if (!have_hdf5()) GTEST_SKIP() << "built without HDF5";
    const test::TemporaryFolder folder;
    std::string bytes = *read_text(write_sample(folder / "a.h5", false).path);
    const std::size_t packed = bytes.find("\x78\x5e");  // how gzip-4 begins
    ASSERT_NE(packed, std::string::npos);
    bytes.replace(packed + 2, 8, 8, '\xff');
    ASSERT_TRUE(write_atomically(folder / "b.h5", bytes).ok());
    const std::string error = error_of(folder / "b.h5");
    EXPECT_NE(error.find("does not unpack: damaged"), std::string::npos) << error;
    EXPECT_NE(error.find("b.h5"), std::string::npos) << error;
}

TEST(Hdf5, ForgedChunkSizeIsRefusedBeforeMemoryIsAskedFor) {
    if (!have_hdf5()) GTEST_SKIP() << "built without HDF5";
    const test::TemporaryFolder folder;
    std::string bytes = *read_text(write_sample(folder / "a.h5", false).path);
    const std::string_view chunk("\5\0\0\0\4\0\0\0\2\0\0\0", 12);  // rows, columns, bytes of an element
    const std::size_t at = bytes.find(chunk);
    ASSERT_NE(at, std::string::npos);
    bytes[at + 3] = 1;  // 2^24 rows
    ASSERT_TRUE(write_atomically(folder / "b.h5", bytes).ok());
    const std::string error = error_of(folder / "b.h5");
    EXPECT_NE(error.find("cannot be a chunk of"), std::string::npos) << error;
}

TEST(Hdf5, FileThatChangesIsAnError) {
    if (!have_hdf5()) GTEST_SKIP() << "built without HDF5";
    const test::TemporaryFolder folder;
    const auto refused = [&](const std::function<void(const Path&)>& change) {
        const Written sample = write_sample(folder / "a.h5", true);
        const auto file = Hdf5File::open(sample.path);
        const auto set = (*file)->dataset("x");
        std::vector<std::byte> rows(12);
        EXPECT_TRUE((*set)->read_rows(3, 1, rows).ok());
        change(sample.path);
        const Status read = (*set)->read_rows(3, 1, rows);
        EXPECT_FALSE(read.ok());
        EXPECT_FALSE((*file)->dataset("plain").ok());
        return read.ok() ? "" : read.error().text();
    };
    EXPECT_NE(refused([](const Path& path) { std::filesystem::resize_file(path, 100); }).find("it had"), std::string::npos);
    EXPECT_NE(refused([](const Path& path) { std::filesystem::resize_file(path, 1u << 20); }).find("has 1048576"),
              std::string::npos);
    EXPECT_NE(refused([](const Path& path) { std::filesystem::remove(path); }).find("deleted or replaced"), std::string::npos);
    EXPECT_NE(refused([](const Path& path) {
                  std::filesystem::last_write_time(path, std::filesystem::last_write_time(path) + std::chrono::seconds(5));
              }).find("written to"),
              std::string::npos);
}

}  // namespace
}  // namespace millrace::io
