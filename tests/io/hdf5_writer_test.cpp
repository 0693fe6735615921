#include "io/hdf5.h"

#include <gtest/gtest.h>

#include <cstdlib>

#include "small_disk.h"
#include "temporary_folder.h"

namespace millrace::io {
namespace {

#define MILLRACE_SKIP_WITHOUT_HDF5() \
    if (!have_hdf5()) GTEST_SKIP() << "built without HDF5"

std::size_t count_entries(const Path& folder) {
    std::size_t count = 0;
    for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator(folder)) ++count;
    return count;
}

/// What a Python program says, with Debian's interpreter where the first one has no h5py: 0 true. Nothing without h5py.
std::optional<int> python_says(const std::string& program) {
    for (const std::string python : {"python3", "/usr/bin/python3"})
        if (std::system((python + " -c 'import h5py' 2> /dev/null").c_str()) == 0)
            return std::system((python + " -c '" + program + "'").c_str());
    return std::nullopt;
}

TEST(Hdf5Writer, H5pyReadsWhatWasWritten) {
    MILLRACE_SKIP_WITHOUT_HDF5();
    const test::TemporaryFolder folder;
    const Path path = folder / "a.h5";
    auto writer = Hdf5Writer::create(path);
    ASSERT_TRUE(writer.ok()) << writer.error().text();
    const auto half = (*writer)->add_dataset({.name = "half",
                                              .type = ElementType::kF16,
                                              .dims = {0, 3},
                                              .growing = true,
                                              .chunk = {4, 2},
                                              .gzip = 4,
                                              .shuffle = true});
    const auto label = (*writer)->add_dataset({.name = "label", .type = ElementType::kI16, .dims = {3}});
    ASSERT_TRUE(half.ok()) << half.error().text();
    ASSERT_TRUE(label.ok()) << label.error().text();
    const std::vector<std::uint16_t> values{0x3c00, 0xc000, 0x0001, 0x7c00, 0x3555, 0x8000, 0x7bff, 0x0400, 0x4248};
    const std::vector<std::int16_t> labels{-1, 2, 300};
    for (std::size_t row = 0; row < 3; ++row)
        ASSERT_TRUE((*writer)->append(*half, std::as_bytes(std::span(values).subspan(row * 3, 3))).ok());
    ASSERT_TRUE((*writer)->append(*label, std::as_bytes(std::span(labels).first(2))).ok());
    ASSERT_TRUE((*writer)->append(*label, std::as_bytes(std::span(labels).last(1))).ok());
    ASSERT_TRUE((*writer)->set_attribute("config_json", "old").ok());
    ASSERT_TRUE((*writer)
                    ->set_attribute("config_json",
                                    "{\"name\": \"Stra\xc3\x9f"
                                    "e\"}")
                    .ok());
    EXPECT_FALSE(std::filesystem::exists(path));
    const Status finished = (*writer)->finish();
    ASSERT_TRUE(finished.ok()) << finished.error().text();
    EXPECT_EQ(count_entries(folder.path()), 1u);
    const auto said = python_says(
        "import h5py, numpy as np\nf = h5py.File(\"" + path.string() +
        "\", \"r\")\nh = f[\"half\"]\nassert h.dtype == np.float16 and h.shape == (3, 3) and h.chunks == (4, 2), h\n"
        "assert h.compression == \"gzip\" and h.compression_opts == 4 and h.shuffle\n"
        "assert h[:].view(np.uint16).ravel().tolist() == [0x3c00,0xc000,1,0x7c00,0x3555,0x8000,0x7bff,0x400,0x4248]\n"
        "assert f[\"label\"][:].tolist() == [-1, 2, 300] and f[\"label\"].dtype == np.int16\n"
        "assert f.attrs[\"config_json\"] == \"{\\\"name\\\": \\\"Stra\\u00dfe\\\"}\", repr(f.attrs[\"config_json\"])");
    if (!said) GTEST_SKIP() << "no h5py";
    EXPECT_EQ(*said, 0);
}

TEST(Hdf5Writer, NothingIsLeftWithoutFinish) {
    MILLRACE_SKIP_WITHOUT_HDF5();
    const test::TemporaryFolder folder;
    ASSERT_TRUE(write_atomically(folder / "a.h5", "the old one").ok());
    {
        auto writer = Hdf5Writer::create(folder / "a.h5");
        ASSERT_TRUE(writer.ok());
        ASSERT_TRUE((*writer)->add_dataset({.name = "x", .dims = {2}}).ok());
        EXPECT_EQ(count_entries(folder.path()), 2u);
    }
    EXPECT_EQ(count_entries(folder.path()), 1u);
    EXPECT_EQ(*read_text(folder / "a.h5"), "the old one");
}

TEST(Hdf5Writer, MissingRowsAreAnErrorAndLeaveNothing) {
    MILLRACE_SKIP_WITHOUT_HDF5();
    const test::TemporaryFolder folder;
    auto writer = Hdf5Writer::create(folder / "a.h5");
    ASSERT_TRUE(writer.ok());
    const auto x = (*writer)->add_dataset({.name = "x", .dims = {2, 2}});
    const std::vector<float> row{1, 2};
    ASSERT_TRUE((*writer)->append(*x, std::as_bytes(std::span(row))).ok());
    const Status early = (*writer)->finish();
    ASSERT_FALSE(early.ok());
    EXPECT_NE(early.error().text().find("data set 'x' has 1 rows of 2"), std::string::npos) << early.error().text();
    EXPECT_EQ(count_entries(folder.path()), 0u);
    EXPECT_FALSE((*writer)->append(*x, std::as_bytes(std::span(row))).ok());
}

TEST(Hdf5Writer, BadLayoutsAndRowsAreRefused) {
    MILLRACE_SKIP_WITHOUT_HDF5();
    const test::TemporaryFolder folder;
    auto writer = Hdf5Writer::create(folder / "a.h5");
    ASSERT_TRUE(writer.ok());
    for (const Hdf5Layout& bad : std::vector<Hdf5Layout>{{.name = "", .dims = {1}},
                                                         {.name = "a/b", .dims = {1}},
                                                         {.name = "a", .dims = {}},
                                                         {.name = "a", .dims = std::vector<std::uint64_t>(33, 1)},
                                                         {.name = "a", .dims = {1, 0}},
                                                         {.name = "a", .dims = {1ull << 40, 1ull << 40}},
                                                         {.name = "a", .type = ElementType::kBF16, .dims = {1}},
                                                         {.name = "a", .dims = {1}, .growing = true},
                                                         {.name = "a", .dims = {1}, .gzip = 4},
                                                         {.name = "a", .dims = {4}, .chunk = {2}, .gzip = 10},
                                                         {.name = "a", .dims = {4, 4}, .chunk = {2}},
                                                         {.name = "a", .dims = {4, 4}, .chunk = {2, 0}},
                                                         {.name = "a", .dims = {4, 4}, .chunk = {2, 5}},
                                                         {.name = "a", .dims = {1ull << 33}, .chunk = {1ull << 31}}})
        EXPECT_FALSE((*writer)->add_dataset(bad).ok());
    const auto x = (*writer)->add_dataset({.name = "x", .type = ElementType::kU8, .dims = {2, 3}});
    ASSERT_TRUE(x.ok());
    EXPECT_FALSE((*writer)->add_dataset({.name = "x", .dims = {1}}).ok());
    const std::vector<std::uint8_t> bytes(9);
    EXPECT_FALSE((*writer)->append(*x, std::as_bytes(std::span(bytes).first(4))).ok());
    EXPECT_FALSE((*writer)->append(*x, std::as_bytes(std::span(bytes))).ok());
    EXPECT_TRUE((*writer)->append(*x, std::as_bytes(std::span(bytes).first(6))).ok());
    EXPECT_TRUE((*writer)->finish().ok());
}

TEST(Hdf5Writer, FullDiskIsAnErrorAndLeavesNothing) {
    MILLRACE_SKIP_WITHOUT_HDF5();
    const test::SmallDisk disk(1u << 20);
    if (!disk.mounted()) GTEST_SKIP() << "may not mount";
    auto writer = Hdf5Writer::create(disk.path() / "a.h5");
    ASSERT_TRUE(writer.ok());
    const std::vector<std::byte> rows(2u << 20);
    const auto x = (*writer)->add_dataset({.name = "x", .type = ElementType::kU8, .dims = {rows.size()}});
    ASSERT_TRUE(x.ok());
    Status status = (*writer)->append(*x, rows);
    if (status.ok()) status = (*writer)->finish();
    ASSERT_FALSE(status.ok());
    EXPECT_NE(status.error().text().find("No space left"), std::string::npos) << status.error().text();
    EXPECT_EQ(count_entries(disk.path()), 0u);
}

TEST(Hdf5Writer, FolderThatIsMissingIsNamed) {
    MILLRACE_SKIP_WITHOUT_HDF5();
    const test::TemporaryFolder folder;
    const auto writer = Hdf5Writer::create(folder / "none/a.h5");
    ASSERT_FALSE(writer.ok());
    EXPECT_NE(writer.error().text().find("No such file"), std::string::npos) << writer.error().text();
}

}  // namespace
}  // namespace millrace::io
