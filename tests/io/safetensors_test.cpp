#include "io/safetensors.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <cstring>
#include <random>

#include "save_safetensors.h"
#include "temporary_folder.h"

namespace millrace::io {
namespace {

/// A file with this header (unpadded) and `data` zero bytes.
std::vector<std::byte> file_with(std::string_view header, std::size_t data) {
    const std::uint64_t length = header.size();
    std::vector<std::byte> bytes(8 + header.size() + data);
    std::memcpy(bytes.data(), &length, 8);
    std::memcpy(bytes.data() + 8, header.data(), header.size());
    return bytes;
}

std::string refusal(const std::vector<std::byte>& bytes) {
    const auto file = SafetensorsFile::parse(bytes, "evil.safetensors");
    EXPECT_FALSE(file.ok());
    if (file.ok()) return "";
    EXPECT_EQ(file.error().place, "evil.safetensors");
    EXPECT_EQ(file.error().exit_status, 2);
    return file.error().message;
}

struct Sample {
    std::vector<float> weight{1.5f, -2, 3, 4, 5, 6};
    std::vector<float> bias{0.25f};
    std::vector<std::int64_t> steps{7, -8};
    std::vector<std::uint8_t> flags{1, 2, 3};

    [[nodiscard]] std::vector<TensorView> views() const {
        return {float_tensor("layer.weight", {2, 3}, weight),
                {"flags", ElementType::kU8, {3}, std::as_bytes(std::span(flags)).data(), 3},
                float_tensor("layer.bias", {}, bias),
                {"steps", ElementType::kI64, {2}, std::as_bytes(std::span(steps)).data(), 16},
                float_tensor("empty", {0, 5}, {})};
    }
};

std::vector<std::byte> sample_bytes() {
    const test::TemporaryFolder folder;
    EXPECT_TRUE(test::save_safetensors(folder / "a", Sample{}.views(), {{"format", "pt"}}).ok());
    return *read_file(folder / "a");
}

TEST(Safetensors, WrittenFileReadsBack) {
    const test::TemporaryFolder folder;
    const Sample sample;
    ASSERT_TRUE(test::save_safetensors(folder / "a", sample.views(), {{"format", "pt"}, {"odd \"key\"", "\n"}}).ok());
    const auto file = SafetensorsFile::open(folder / "a");
    ASSERT_TRUE(file.ok()) << file.error().text();
    EXPECT_EQ(file->tensors().size(), 5u);
    EXPECT_EQ(file->metadata().at("odd \"key\""), "\n");
    std::vector<float> weight(6);
    ASSERT_TRUE(file->copy_floats("layer.weight", std::vector<std::int64_t>{2, 3}, weight).ok());
    EXPECT_EQ(weight, sample.weight);
    std::vector<float> bias(1);
    ASSERT_TRUE(file->copy_floats("layer.bias", std::vector<std::int64_t>{}, bias).ok());  // misaligned behind three bytes
    EXPECT_EQ(bias, sample.bias);
    EXPECT_EQ(std::memcmp(file->find("steps")->data, sample.steps.data(), 16), 0);
    EXPECT_EQ(file->find("nothing"), nullptr);
    std::uint64_t header = 0;
    const auto bytes = read_file(folder / "a");
    std::memcpy(&header, bytes->data(), 8);
    EXPECT_EQ((header + 8) % 64, 0u);
    Checksum64 sum;
    ASSERT_TRUE(file->add_to(sum).ok());
    EXPECT_EQ(sum.value(), checksum_of(*bytes));
}

Result<SafetensorsFile> in_place(const Path& path) {
    MILLRACE_LET(opened, open_regular(path));
    return SafetensorsFile::open_in_place(std::move(opened), path);
}

TEST(Safetensors, FileInPlaceGivesWhatTheReadOneGivesEvenWhenItIsGone) {
    const test::TemporaryFolder folder;
    const Sample sample;
    std::vector<float> large(600'011);
    for (std::size_t i = 0; i < large.size(); ++i) large[i] = static_cast<float>(i);
    std::vector<TensorView> views = sample.views();
    views.push_back(float_tensor("large", {600'011}, large));
    ASSERT_TRUE(test::save_safetensors(folder / "a", views, {{"format", "pt"}}).ok());
    const auto bytes = read_file(folder / "a");
    auto made = in_place(folder / "a");
    ASSERT_TRUE(made.ok()) << made.error().text();
    const SafetensorsFile file = std::move(made).value();  // views point into what was moved
    std::filesystem::remove(folder / "a");
    EXPECT_EQ(file.metadata().at("format"), "pt");
    EXPECT_EQ(file.find("steps")->data, nullptr);
    const auto steps = file.read(*file.find("steps"));
    ASSERT_TRUE(steps.ok()) << steps.error().text();
    EXPECT_EQ(std::memcmp(steps->data(), sample.steps.data(), 16), 0);
    EXPECT_TRUE(file.read(*file.find("empty"))->empty());
    std::vector<float> weight(6), all(large.size()), some(3);
    ASSERT_TRUE(file.copy_floats("layer.weight", std::vector<std::int64_t>{2, 3}, weight).ok());
    EXPECT_EQ(weight, sample.weight);
    ASSERT_TRUE(file.copy_floats("large", std::vector<std::int64_t>{600'011}, all).ok());
    EXPECT_EQ(all, large);
    ASSERT_TRUE(file.copy_floats("large", std::vector<std::int64_t>{600'011}, some, 600'008).ok());
    EXPECT_EQ(some, (std::vector<float>{600'008, 600'009, 600'010}));
    Checksum64 sum;
    ASSERT_TRUE(file.add_to(sum).ok());
    EXPECT_EQ(sum.value(), checksum_of(*bytes));
}

TEST(Safetensors, DamagedFileInPlaceIsRefusedAsTheReadOneIs) {
    const test::TemporaryFolder folder;
    const std::vector<std::byte> whole = sample_bytes();
    for (const std::size_t size : {std::size_t{0}, std::size_t{7}, std::size_t{8}, std::size_t{40}, whole.size() - 1}) {
        const std::vector<std::byte> cut(whole.begin(), whole.begin() + static_cast<std::ptrdiff_t>(size));
        ASSERT_TRUE(write_atomically(folder / "a", cut).ok());
        const auto file = in_place(folder / "a");
        ASSERT_FALSE(file.ok()) << size;
        EXPECT_EQ(file.error().text(), SafetensorsFile::parse(cut, folder / "a").error().text());
    }
    ASSERT_TRUE(write_atomically(folder / "a", whole).ok());
    const auto file = in_place(folder / "a");
    ASSERT_TRUE(file.ok());
    std::filesystem::resize_file(folder / "a", whole.size() / 2);  // behind our back
    std::vector<float> weight(6);
    EXPECT_FALSE(file->copy_floats("layer.weight", std::vector<std::int64_t>{2, 3}, weight).ok());
}

TEST(Safetensors, TensorsThatLieElsewhereArePoured) {
    const test::TemporaryFolder folder;
    const Sample sample;
    std::vector<TensorView> views = sample.views();
    views[0].data = nullptr;
    views[0].pour = [&](ByteSink& sink) -> Status {
        for (const float& value : sample.weight) MILLRACE_TRY(sink.write(std::as_bytes(std::span(&value, 1))));
        return base::ok();
    };
    ASSERT_TRUE(test::save_safetensors(folder / "a", views, {{"format", "pt"}}).ok());
    EXPECT_EQ(*read_file(folder / "a"), sample_bytes());
    views[0].pour = [](ByteSink&) -> Status { return Error{"the device failed"}; };
    EXPECT_FALSE(test::save_safetensors(folder / "b", views).ok());
    EXPECT_FALSE(std::filesystem::exists(folder / "b"));
}

TEST(Safetensors, FileWithoutTensorsIsFine) {
    const test::TemporaryFolder folder;
    ASSERT_TRUE(test::save_safetensors(folder / "a", {}).ok());
    EXPECT_TRUE(SafetensorsFile::open(folder / "a")->tensors().empty());
}

TEST(Safetensors, PythonReadsTheSameValues) {
    if (std::system("python3 -c '' > /dev/null 2>&1") != 0) GTEST_SKIP() << "no python3";
    const test::TemporaryFolder folder;
    ASSERT_TRUE(test::save_safetensors(folder / "a", Sample{}.views(), {{"format", "pt"}}).ok());
    const char* script = R"(import json, struct, sys
raw = open(sys.argv[1], 'rb').read()
n = struct.unpack('<Q', raw[:8])[0]
head, data = json.loads(raw[8:8 + n]), raw[8 + n:]
def read(name, code):
    b, e = head[name]['data_offsets']
    return list(struct.unpack('<%d%s' % ((e - b) // struct.calcsize(code), code), data[b:e]))
assert head['__metadata__'] == {'format': 'pt'}
assert head['layer.weight']['shape'] == [2, 3] and head['layer.weight']['dtype'] == 'F32'
assert read('layer.weight', 'f') == [1.5, -2, 3, 4, 5, 6]
assert read('layer.bias', 'f') == [0.25] and head['layer.bias']['shape'] == []
assert read('steps', 'q') == [7, -8] and read('flags', 'B') == [1, 2, 3] and read('empty', 'f') == []
)";
    ASSERT_TRUE(write_atomically(folder / "read.py", script).ok());
    EXPECT_EQ(std::system(fmt::format("python3 {} {}", (folder / "read.py").string(), (folder / "a").string()).c_str()), 0);
}

TEST(Safetensors, HalfPrecisionIsWidened) {
    const std::vector<std::uint16_t> half{0x3c00, 0xc000, 0x0001, 0x7c00, 0x7e00, 0x8000};
    const std::vector<std::uint16_t> brain{0x3f80, 0xc000};
    const test::TemporaryFolder folder;
    const std::vector<TensorView> views{{"h", ElementType::kF16, {6}, std::as_bytes(std::span(half)).data(), 12},
                                        {"b", ElementType::kBF16, {2}, std::as_bytes(std::span(brain)).data(), 4}};
    ASSERT_TRUE(test::save_safetensors(folder / "a", views).ok());
    const auto file = SafetensorsFile::open(folder / "a");
    std::vector<float> h(6), b(2);
    ASSERT_TRUE(file->copy_floats("h", std::vector<std::int64_t>{6}, h).ok());
    EXPECT_EQ(h[0], 1.0f);
    EXPECT_EQ(h[1], -2.0f);
    EXPECT_EQ(h[2], 0x1p-24f);
    EXPECT_TRUE(std::isinf(h[3]));
    EXPECT_TRUE(std::isnan(h[4]));
    EXPECT_TRUE(h[5] == 0 && std::signbit(h[5]));
    ASSERT_TRUE(file->copy_floats("b", std::vector<std::int64_t>{2}, b).ok());
    EXPECT_EQ(b, (std::vector<float>{1, -2}));
}

TEST(Safetensors, MissingTensorAndWrongShapeAreNamed) {
    const auto file = SafetensorsFile::parse(sample_bytes(), "a.safetensors");
    std::vector<float> six(6);
    const auto missing = file->copy_floats("other.weight", std::vector<std::int64_t>{6}, six);
    EXPECT_NE(missing.error().text().find("a.safetensors: tensor 'other.weight' is missing"), std::string::npos);
    const auto shape = file->copy_floats("layer.weight", std::vector<std::int64_t>{3, 2}, six);
    EXPECT_NE(shape.error().text().find("has shape [2, 3], the model needs [3, 2]"), std::string::npos);
    EXPECT_FALSE(file->copy_floats("flags", std::vector<std::int64_t>{3}, std::span(six).first(3)).ok());
}

TEST(Safetensors, WriterRefusesWhatAReaderWould) {
    const test::TemporaryFolder folder;
    const std::vector<float> one{1};
    EXPECT_FALSE(
        test::save_safetensors(folder / "a", std::vector{float_tensor("x", {1}, one), float_tensor("x", {1}, one)}).ok());
    EXPECT_FALSE(test::save_safetensors(folder / "a", std::vector{float_tensor("__metadata__", {1}, one)}).ok());
    EXPECT_FALSE(test::save_safetensors(folder / "a", std::vector{float_tensor("\xff", {1}, one)}).ok());
    EXPECT_FALSE(test::save_safetensors(folder / "a", std::vector<TensorView>{{"x", ElementType::kF32, {2}, nullptr, 4}}).ok());
    EXPECT_FALSE(std::filesystem::exists(folder / "a"));
}

TEST(Safetensors, DishonestHeadersAreRefused) {
    const auto one = [](std::string_view fields) { return fmt::format(R"({{"t":{{{}}}}})", fields); };
    EXPECT_NE(refusal(file_with(one(R"("dtype":"F32","shape":[2],"data_offsets":[0,8])"), 4)).find("'t' lies at bytes 0 to 8"),
              std::string::npos);
    EXPECT_NE(refusal(file_with(one(R"("dtype":"F32","shape":[3],"data_offsets":[0,8])"), 8)).find("does not fit"),
              std::string::npos);
    refusal(file_with(one(R"("dtype":"F32","shape":[2],"data_offsets":[8,0])"), 8));
    refusal(file_with(one(R"("dtype":"F32","shape":[4611686018427387904,4],"data_offsets":[0,0])"), 0));
    refusal(file_with(one(R"("dtype":"F32","shape":[18446744073709551615],"data_offsets":[0,8])"), 8));
    refusal(file_with(one(R"("dtype":"F32","shape":[-2],"data_offsets":[0,8])"), 8));
    refusal(file_with(one(R"("dtype":"F32","shape":[2.0],"data_offsets":[0,8])"), 8));
    EXPECT_NE(refusal(file_with(one(R"("dtype":"F31","shape":[2],"data_offsets":[0,8])"), 8)).find("unknown type 'F31'"),
              std::string::npos);
    refusal(file_with(one(R"("dtype":"F32","shape":[2],"data_offsets":[0,8,9])"), 8));
    refusal(file_with(one(R"("dtype":"F32","shape":[2],"data_offsets":[0])"), 8));
    refusal(file_with(one(R"("dtype":"F32","shape":[2])"), 8));
    refusal(file_with(one(R"("dtype":"F32","shape":[2],"data_offsets":[0,8],"extra":1)"), 8));
    refusal(file_with(one(R"("dtype":"F32","dtype":"F32","shape":[2],"data_offsets":[0,8])"), 8));
    EXPECT_NE(refusal(file_with(one(R"("dtype":"F32","shape":[2],"data_offsets":[0,8])"), 9)).find("after the last tensor"),
              std::string::npos);
    EXPECT_NE(refusal(file_with(one(R"("dtype":"F32","shape":[1],"data_offsets":[4,8])"), 8)).find("hole"), std::string::npos);
    for (const char* text :
         {"", "{", "[]", "null", "{}{}", R"({"t":1})", R"({"t":null})", R"({"t":1e999})", R"({"__metadata__":{"a":1}})",
          R"({"__metadata__":{"a":{}}})", R"({"t":{"dtype":"F32","shape":[[2]],"data_offsets":[0,8]}})"})
        refusal(file_with(text, 0));
}

TEST(Safetensors, OverlapsAndDuplicatesAreRefused) {
    const char* overlap =
        R"({"a":{"dtype":"U8","shape":[5],"data_offsets":[0,5]},"b":{"dtype":"U8","shape":[5],"data_offsets":[3,8]}})";
    EXPECT_NE(refusal(file_with(overlap, 8)).find("'b' overlaps"), std::string::npos);
    const char* twice =
        R"({"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]},"a":{"dtype":"U8","shape":[4],"data_offsets":[4,8]}})";
    EXPECT_NE(refusal(file_with(twice, 8)).find("'a' twice"), std::string::npos);
}

TEST(Safetensors, DeepNestingIsRefusedAtOnce) { refusal(file_with("{\"a\":" + std::string(1'000'000, '['), 0)); }

TEST(Safetensors, HeaderLengthsBeyondTheFileAreRefused) {
    for (const std::uint64_t length : {std::uint64_t{3}, std::uint64_t{100'000'001}, ~std::uint64_t{0}, ~std::uint64_t{0} - 7}) {
        auto bytes = file_with("{}", 0);
        std::memcpy(bytes.data(), &length, 8);
        refusal(bytes);
    }
}

TEST(Safetensors, EveryTruncationIsRefused) {
    const auto whole = sample_bytes();
    for (std::size_t size = 0; size < whole.size(); ++size)
        refusal({whole.begin(), whole.begin() + static_cast<std::ptrdiff_t>(size)});
}

TEST(Safetensors, FlippedBytesNeverCrash) {
    const auto whole = sample_bytes();
    std::mt19937 random(11);
    std::size_t refused = 0;
    for (int round = 0; round < 5000; ++round) {
        auto bytes = whole;
        for (auto flips = 1 + random() % 3; flips > 0; --flips) bytes[random() % bytes.size()] = static_cast<std::byte>(random());
        const auto file = SafetensorsFile::parse(std::move(bytes), "x");
        if (!file.ok())
            ++refused;
        else
            for (const TensorView& tensor : file->tensors()) {
                const auto read = file->read(tensor);  // address sanitizer sees a view that leads out of the file
                EXPECT_TRUE(read.ok() && read->size() == tensor.bytes && tensor.bytes <= whole.size());
            }
    }
    EXPECT_GT(refused, 1000u);
}

}  // namespace
}  // namespace millrace::io
