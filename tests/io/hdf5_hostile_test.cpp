// Chunk indexes that lie. The files are the fuzzer's corpus, changed in one place each.

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstring>
#include <random>

#include "fuzz/hdf5_target.h"
#include "io/hdf5.h"
#include "temporary_folder.h"

namespace millrace::io {
namespace {

class Hdf5Hostile : public testing::Test {
protected:
    void SetUp() override {
        if (!have_hdf5()) GTEST_SKIP() << "built without HDF5";
    }
    [[nodiscard]] static std::string corpus(const std::string& name) {
        return *read_text(Path(MILLRACE_SOURCE_ROOT) / "tests/fuzz/corpus-hdf5" / name);
    }
    /// What is said about an input, whose index must be refused.
    std::string refusal(const std::string& bytes) {
        const fuzz::Hdf5Input input = fuzz::hdf5_input(bytes);
        EXPECT_TRUE(write_atomically(folder_ / "evil.h5", input.file).ok());
        const auto file = Hdf5Bytes::open(folder_ / "evil.h5");
        const auto index = index_chunks(*file, input.header, input.geometry);
        EXPECT_FALSE(index.ok());
        return index.ok() ? "" : index.error().text();
    }
    template <class Number>
    static std::string changed(std::string bytes, std::size_t at, Number value) {
        EXPECT_LE(at + sizeof value, bytes.size());
        std::memcpy(bytes.data() + at, &value, sizeof value);
        return bytes;
    }
    /// The last node of the B-tree of chunks in an input; the root of a small one.
    static std::size_t node_in(const std::string& bytes) {
        const std::size_t at = bytes.rfind(std::string("TREE\x01", 5));
        EXPECT_NE(at, std::string::npos);
        return at;
    }
    static constexpr std::size_t kPreface = 5 + 2 * 3;  // of inputs with two axes
    static constexpr std::size_t kKey = 24;             // of a node: where the first one begins
    static constexpr std::size_t kChild = kKey + 8 + 8 * 3;

    test::TemporaryFolder folder_;
};

bool says(const std::string& text, std::string_view part) { return text.find(part) != std::string::npos; }

TEST_F(Hdf5Hostile, CorpusIsReadWithoutABrokenPromise) {
    std::size_t inputs = 0;
    for (const auto& entry : std::filesystem::directory_iterator(Path(MILLRACE_SOURCE_ROOT) / "tests/fuzz/corpus-hdf5")) {
        fuzz::read_hdf5_bytes(*read_text(entry.path()), folder_ / "a.h5");
        ++inputs;
    }
    EXPECT_GE(inputs, 13u);
}

TEST_F(Hdf5Hostile, BytesAndCutsAtRandomKeepThePromises) {
    std::mt19937 random(5);
    for (const auto& entry : std::filesystem::directory_iterator(Path(MILLRACE_SOURCE_ROOT) / "tests/fuzz/corpus-hdf5")) {
        const std::string bytes = *read_text(entry.path());
        for (int round = 0; round < 60; ++round) {
            std::string other = bytes;
            for (int change = 0; change < 4; ++change) other[random() % other.size()] = static_cast<char>(random());
            if (round % 4 == 0) other.resize(random() % other.size());
            fuzz::read_hdf5_bytes(other, folder_ / "a.h5");
        }
    }
}

TEST_F(Hdf5Hostile, TreeThatLeadsInACircleIsRefused) {
    const std::string bytes = corpus("tree");
    const std::size_t node = node_in(bytes);
    const std::uint64_t own = node - kPreface;
    // One entry, of level 1, that is the node itself.
    const std::string upper = changed(changed(bytes, node + 5, std::uint8_t{1}), node + 6, std::uint16_t{1});
    const std::string said = refusal(changed(upper, node + kChild, own));
    EXPECT_TRUE(says(said, "has level 1, the one above 1")) << said;
    EXPECT_TRUE(says(said, "evil.h5")) << said;
    EXPECT_TRUE(says(said, "data set 'x'")) << said;
}

TEST_F(Hdf5Hostile, ChunkBeyondTheEndIsRefused) {
    const std::string bytes = corpus("tree");
    for (const std::uint64_t address : {bytes.size() - kPreface - 7, std::size_t{1} << 40, ~std::size_t{0} - 3}) {
        const std::string said = refusal(changed(bytes, node_in(bytes) + kChild, std::uint64_t{address}));
        EXPECT_TRUE(says(said, "but the file has")) << said;
    }
}

TEST_F(Hdf5Hostile, ChunksThatOverlapAreRefused) {
    const std::string bytes = corpus("tree");
    const std::size_t first = node_in(bytes) + kChild, second = first + 8 + 8 + 8 * 3;
    std::uint64_t address = 0;
    std::memcpy(&address, bytes.data() + first, sizeof address);
    EXPECT_TRUE(says(refusal(changed(bytes, second, address + 1)), "overlap at byte"));
}

TEST_F(Hdf5Hostile, SizesThatLieAreRefused) {
    const std::string plain = corpus("tree"), packed = corpus("tree-gzip");
    const std::string wrong = refusal(changed(plain, node_in(plain) + kKey, std::uint32_t{9}));
    EXPECT_TRUE(says(wrong, "has 9 bytes instead of 8")) << wrong;
    EXPECT_TRUE(says(refusal(changed(packed, node_in(packed) + kKey, std::uint32_t{0})), "cannot unpack 0 bytes to 16"));
    const std::string many = refusal(changed(plain, node_in(plain) + 6, std::uint16_t{65535}));
    EXPECT_TRUE(says(many, "a node of the B-tree")) << many;
}

TEST_F(Hdf5Hostile, ChunkThatIsNoMultipleIsRefused) {
    const std::string bytes = corpus("tree");
    EXPECT_TRUE(says(refusal(changed(bytes, node_in(bytes) + kKey + 8, std::uint64_t{1})), "no multiple of 2"));
}

TEST_F(Hdf5Hostile, ShapesBeyondAllFilesAreRefusedBeforeMemoryIsTaken) {
    Hdf5Geometry geometry{.name = "x", .dims = {1ull << 40, 1ull << 40}, .element = 4, .chunk = {1, 1}};
    EXPECT_TRUE(says(geometry.check("evil.h5").error().text(), "larger than any file"));
    geometry.dims = {1ull << 40, 1};
    geometry.chunk = {1ull << 31, 1};
    EXPECT_TRUE(says(geometry.check("evil.h5").error().text(), "4 GiB"));
    // A chunk of 4 GB cannot come out of a hundred bytes.
    std::string bytes = corpus("tree-gzip");
    const fuzz::Hdf5Input input = fuzz::hdf5_input(bytes);
    Hdf5Geometry large = input.geometry;
    large.chunk = {1u << 20, 512};
    ASSERT_TRUE(write_atomically(folder_ / "evil.h5", input.file).ok());
    const auto file = Hdf5Bytes::open(folder_ / "evil.h5");
    EXPECT_TRUE(says(index_chunks(*file, input.header, large).error().text(), "contradicts its shape"));
}

TEST_F(Hdf5Hostile, ChunkThatDoesNotUnpackIsNamed) {
    std::string bytes = corpus("tree-gzip");
    const std::size_t node = node_in(bytes);
    std::uint64_t address = 0;
    std::memcpy(&address, bytes.data() + node + kChild, sizeof address);
    bytes = changed(bytes, kPreface + address + 3, ~std::uint64_t{0});
    const fuzz::Hdf5Input input = fuzz::hdf5_input(bytes);
    ASSERT_TRUE(write_atomically(folder_ / "evil.h5", input.file).ok());
    const auto file = Hdf5Bytes::open(folder_ / "evil.h5");
    const auto index = index_chunks(*file, input.header, input.geometry);
    ASSERT_TRUE(index.ok()) << index.error().text();
    std::vector<std::byte> rows(7 * 12);
    const Status read = read_chunked_rows(*file, input.geometry, **index, 0, 7, rows);
    ASSERT_FALSE(read.ok());
    EXPECT_TRUE(says(read.error().text(), "data set 'x': chunk 0 at byte")) << read.error().text();
}

}  // namespace
}  // namespace millrace::io
