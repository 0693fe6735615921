#include "io/sound_file.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cmath>
#include <limits>
#include <thread>

#include "fuzz/sound_target.h"
#include "places.h"
#include "temporary_folder.h"

namespace millrace::io {
namespace {

std::string number(std::uint32_t value, int size) {
    std::string bytes;
    for (int i = 0; i < size; ++i) bytes.push_back(static_cast<char>(value >> (8 * i) & 0xFF));
    return bytes;
}

struct Header {
    std::uint32_t format = 1, channels = 1, rate = 4096, bits = 16;
    std::uint32_t data = UINT32_MAX - 1;  ///< bytes it claims; unset: as many as there are
};

std::string wav(const Header& header, const std::string& data) {
    const std::uint32_t claimed = header.data == UINT32_MAX - 1 ? static_cast<std::uint32_t>(data.size()) : header.data;
    const std::uint32_t frame = header.channels * header.bits / 8;
    return "RIFF" + number(36 + claimed, 4) + "WAVEfmt " + number(16, 4) + number(header.format, 2) + number(header.channels, 2) +
           number(header.rate, 4) + number(header.rate * frame, 4) + number(frame, 2) + number(header.bits, 2) + "data" +
           number(claimed, 4) + data;
}

std::string floats(const std::vector<float>& values) {
    return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float)};
}

class SoundFile : public ::testing::Test {
protected:
    void SetUp() override {
        if (!can_read_sound()) GTEST_SKIP() << "this build has no libsndfile";
    }
    Result<Sound> read(const std::string& bytes, double seconds = 1e9) const {
        EXPECT_TRUE(write_atomically(folder_ / "x.wav", bytes).ok());
        return read_sound(folder_ / "x.wav", seconds);
    }
    void expect_refusal(const std::string& bytes, const std::string& words) const {
        const auto sound = read(bytes);
        ASSERT_FALSE(sound.ok()) << words;
        EXPECT_NE(sound.error().message.find(words), std::string::npos) << sound.error().text();
        EXPECT_NE(sound.error().place.find("x.wav"), std::string::npos) << sound.error().text();
        EXPECT_EQ(sound.error().exit_status, 2);
    }
    test::TemporaryFolder folder_;
};

TEST_F(SoundFile, WhatIsWrittenIsRead) {
    std::vector<float> samples(10'000);
    for (std::size_t i = 0; i < samples.size(); ++i) samples[i] = std::sin(0.01f * static_cast<float>(i));
    for (const WavFormat format : {WavFormat::f32, WavFormat::pcm16}) {
        ASSERT_TRUE(write_wav(folder_ / "x.wav", samples, 44'100, format).ok());
        const auto sound = read_sound(folder_ / "x.wav");
        ASSERT_TRUE(sound.ok()) << sound.error().text();
        EXPECT_EQ(sound->rate, 44'100u);
        EXPECT_EQ(sound->channels, 1u);
        ASSERT_EQ(sound->samples.size(), samples.size());
        for (std::size_t i = 0; i < samples.size(); ++i)
            ASSERT_NEAR(sound->samples[i], samples[i], format == WavFormat::f32 ? 0 : 1.0 / 32768) << i;
    }
    ASSERT_TRUE(write_wav(folder_ / "x.wav", std::vector<float>{2, -2}, 4096, WavFormat::pcm16).ok());
    EXPECT_EQ(read_sound(folder_ / "x.wav")->samples, (std::vector<float>{32767.0f / 32768, -1}));
    EXPECT_FALSE(write_wav(folder_ / "y.wav", std::vector<float>{NAN}, 4096, WavFormat::f32).ok());
    EXPECT_FALSE(std::filesystem::exists(folder_ / "y.wav"));
}

TEST_F(SoundFile, ChannelsAreAveraged) {
    const auto stereo = read(wav({3, 2, 8000, 32}, floats({1.0f, 0.0f, -0.5f, 0.25f})));
    ASSERT_TRUE(stereo.ok()) << stereo.error().text();
    EXPECT_EQ(stereo->samples, (std::vector<float>{0.5f, -0.125f}));
    EXPECT_EQ(stereo->channels, 2u);
    const auto eight_bits = read(wav({1, 1, 8000, 8}, std::string("\x80\xC0\x00", 3)));
    ASSERT_TRUE(eight_bits.ok()) << eight_bits.error().text();
    EXPECT_EQ(eight_bits->samples, (std::vector<float>{0, 0.5f, -1}));
}

TEST_F(SoundFile, FlacIsRead) {
    const Path flac = millrace::testing::source_root() / "tests/goldens/sound/ramp.flac";
    const auto sound = read_sound(flac);
    ASSERT_TRUE(sound.ok()) << sound.error().text();
    EXPECT_EQ(sound->rate, 8000u);
    ASSERT_EQ(sound->samples.size(), 200u);
    for (int i = 0; i < 200; ++i) ASSERT_NEAR(sound->samples[static_cast<std::size_t>(i)], i / 1024.0, 1e-4) << i;
    const std::string bytes = read_text(flac).value();
    for (const std::size_t kept : {bytes.size() - 20, std::size_t{60}, std::size_t{10}})
        EXPECT_FALSE(read(bytes.substr(0, kept)).ok()) << kept;
    std::string lying = bytes;
    lying[21] = static_cast<char>(lying[21] | 0x0F);  // the length's upper bits
    expect_refusal(lying, "at most 268435456");
    const auto begin = read(lying, 0.0125);
    EXPECT_TRUE(begin.ok()) << begin.error().text();
}

TEST_F(SoundFile, FlacOfUnknownLengthIsReadToItsEnd) {
    const Path corpus = millrace::testing::source_root() / "tests/fuzz/corpus-sound";
    const auto whole = read(read_text(corpus / "flac-unknown-length-frames").value());
    ASSERT_TRUE(whole.ok()) << whole.error().text();
    EXPECT_EQ(whole->frames, 0u);
    ASSERT_EQ(whole->samples.size(), 3 * 4096u);
    EXPECT_EQ(whole->samples.back(), 2000.0f / 32768);
    const std::string cut = read_text(corpus / "flac-unknown-length-cut").value();
    expect_refusal(cut, "cannot be read behind frame 8192");
    EXPECT_TRUE(read(cut, 1.0).ok()) << "8000 frames are there";
}

TEST_F(SoundFile, CorpusIsReadWithoutABrokenPromise) {
    std::size_t inputs = 0;
    for (const auto& entry : std::filesystem::directory_iterator(millrace::testing::source_root() / "tests/fuzz/corpus-sound")) {
        fuzz::read_sound_bytes(read_text(entry.path()).value(), folder_ / "x");
        ++inputs;
    }
    EXPECT_GE(inputs, 28u);
}

TEST_F(SoundFile, ThreadsAreToldTheReasonsOfTheirOwnFiles) {
    ASSERT_TRUE(write_atomically(folder_ / "bits.wav", wav({.bits = 0}, "xx")).ok());
    ASSERT_TRUE(write_atomically(folder_ / "format.wav", wav({.format = 0x1234}, "xx")).ok());
    const auto reason = [&](const char* name) { return read_sound(folder_ / name).error().message; };
    const std::string bits = reason("bits.wav"), format = reason("format.wav");
    ASSERT_NE(bits, format);
    std::atomic<int> wrong{0};
    const auto work = [&](const char* name, const std::string& expected) {
        for (int i = 0; i < 2000; ++i) wrong += reason(name) == expected ? 0 : 1;
    };
    { const std::jthread one(work, "bits.wav", bits), other(work, "format.wav", format); }
    EXPECT_EQ(wrong, 0);
}

TEST_F(SoundFile, OnlyTheBeginningIsRead) {
    const auto sound = read(wav({3, 1, 4096, 32}, floats({1, 2, 3, NAN})), 3.0 / 4096);
    ASSERT_TRUE(sound.ok()) << sound.error().text();
    EXPECT_EQ(sound->samples, (std::vector<float>{1, 2, 3}));
    EXPECT_EQ(sound->frames, 4u);
}

TEST_F(SoundFile, LyingHeadersAreRefused) {
    const std::string data(400, '\1');
    ASSERT_TRUE(read(wav({}, data)).ok());
    expect_refusal(wav({.data = 4000}, data), "claims 4000 bytes of sound, but the file ends after 400");
    expect_refusal(wav({.data = 0x7FFFFFFE}, data), "the file ends after 400");
    expect_refusal(wav({.channels = 0}, data), "0 channels");
    expect_refusal(wav({.rate = 0}, data), "0 Hz");
    expect_refusal(wav({.rate = 4'000'000'000u}, data), "4000000000 Hz");
    expect_refusal(wav({.bits = 0}, data), "");
    expect_refusal(wav({.format = 0x1234}, data), "");
    const auto piped = read(wav({.data = UINT32_MAX}, data));
    ASSERT_TRUE(piped.ok()) << piped.error().text();
    EXPECT_EQ(piped->samples.size(), 200u);
}

TEST_F(SoundFile, CutOffFilesAreRefused) {
    const std::string whole = wav({}, std::string(400, '\1'));
    for (std::size_t kept = 0; kept < whole.size(); ++kept) EXPECT_FALSE(read(whole.substr(0, kept)).ok()) << kept;
    expect_refusal("", "0 bytes");
    expect_refusal(wav({}, ""), "0 frames");
    expect_refusal(std::string(5000, 'x'), "neither WAV nor FLAC");
    std::string many = "RIFF" + number(0, 4) + "WAVE";
    for (int i = 0; i < 10'000; ++i) many += "JUNK" + number(0, 4);
    expect_refusal(many, "no data chunk");
}

TEST_F(SoundFile, SamplesThatAreNoNumbersAreReported) {
    std::vector<float> samples(50'000);
    samples[40'000] = std::numeric_limits<float>::quiet_NaN();
    expect_refusal(wav({3, 1, 4096, 32}, floats(samples)), "sample 40000 is NaN");
    samples[40'000] = -std::numeric_limits<float>::infinity();
    expect_refusal(wav({3, 1, 4096, 32}, floats(samples)), "sample 40000 is infinite");
}

TEST_F(SoundFile, FoldersAndMissingFilesAreRefused) {
    EXPECT_FALSE(read_sound(folder_.path()).ok());
    EXPECT_FALSE(read_sound(folder_ / "nothing.wav").ok());
}

}  // namespace
}  // namespace millrace::io
