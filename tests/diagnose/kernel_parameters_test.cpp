#include "diagnose/reading/kernel_parameters.h"

#include <gtest/gtest.h>

#include <fstream>
#include <sstream>

#include "places.h"

namespace millrace::diagnose {
namespace {

using record::Argument;

struct Launch {
    std::string kernel;
    std::vector<Argument> words;
};

std::vector<std::vector<Launch>> recorded_steps() {
    std::vector<std::vector<Launch>> steps;
    std::ifstream file(testing::source_root() / "tests/goldens/launches/tables.txt");
    for (std::string line; std::getline(file, line);) {
        if (line == "step") {
            steps.emplace_back();
            continue;
        }
        std::istringstream words(line);
        Launch launch;
        words >> launch.kernel;
        unsigned at = 0, parameter = 0, width = 0;
        for (char colon = 0, kind = 0; words >> at >> colon >> parameter >> colon >> width >> colon >> kind >> colon;) {
            Argument argument;
            words >> std::hex >> argument.value >> std::dec;
            argument.index = record::argument_index(at, parameter, width) | (kind == 'p' ? 0 : record::kNoPointer);
            launch.words.push_back(argument);
        }
        launch.words.push_back({0, steps.size() * 1000 + steps.back().size()});  // the hash of all bytes differs always
        steps.back().push_back(std::move(launch));
    }
    return steps;
}

bool known(const std::string& kernel) {
    for (const char* family : {"vectorized_elementwise_kernel", "unrolled_elementwise_kernel", "18elementwise_kernelI",
                               "elementwise_kernel_with_index", "triu_tril_kernel", "CatArrayBatchedCopy"})
        if (kernel.find(family) != std::string::npos) return true;
    return false;
}

TEST(KernelParameters, OnlyLaunchesWhoseNumbersChangeDiffer) {
    const auto steps = recorded_steps();
    ASSERT_EQ(steps.size(), 2u);
    ASSERT_EQ(steps[0].size(), steps[1].size());
    std::vector<std::string> changed;
    std::size_t compared = 0;
    for (std::size_t i = 0; i < steps[0].size(); ++i) {
        const Launch &one = steps[0][i], &other = steps[1][i];
        ASSERT_EQ(one.kernel, other.kernel);
        if (!known(one.kernel)) continue;
        ++compared;
        if (given_parameters(one.kernel, one.words) != given_parameters(other.kernel, other.words)) changed.push_back(one.kernel);
    }
    EXPECT_EQ(compared, 53u);
    ASSERT_EQ(changed.size(), 5u);
    EXPECT_NE(changed[0].find("arange"), std::string::npos);
    EXPECT_NE(changed[1].find("linspace"), std::string::npos);
    EXPECT_NE(changed[2].find("FillFunctor"), std::string::npos);
    EXPECT_NE(changed[3].find("AUnaryFunctor"), std::string::npos) << "a number that is multiplied through strides";
    EXPECT_NE(changed[4].find("CUDAFunctor_add"), std::string::npos) << "the learning rate";
}

TEST(KernelParameters, PointersThatEarlierCallsLeftBehindAreNone) {
    const auto steps = recorded_steps();
    for (const Launch& launch : steps[0]) {
        if (!known(launch.kernel)) continue;
        const GivenParameters given = given_parameters(launch.kernel, launch.words);
        ASSERT_FALSE(given.pointers.empty()) << launch.kernel;
        if (launch.kernel.find("gpu_kernel_impl_nocastINS0_13BinaryFunctor") != std::string::npos) {
            EXPECT_EQ(given.pointers.size(), 3u) << "without pointers that earlier calls left behind";
        }
        if (launch.kernel.find("triu_tril") != std::string::npos) {
            EXPECT_EQ(given.pointers.size(), 2u);
        }
        if (launch.kernel.find("CatArray") != std::string::npos) {
            EXPECT_EQ(given.pointers.size(), 3u) << "an output and two inputs";
        }
    }
}

TEST(KernelParameters, AChangedByteThatCountsIsSeen) {
    const auto steps = recorded_steps();
    for (const Launch& launch : steps[0]) {
        if (launch.kernel.find("18elementwise_kernelI") == std::string::npos) continue;
        Launch other = launch;
        Argument& count = other.words[0];  // how many elements
        count.value += 1;
        EXPECT_NE(given_parameters(launch.kernel, launch.words), given_parameters(other.kernel, other.words));
        other = launch;
        other.words[1].value ^= std::uint64_t{1} << 32;  // the first divisor
        EXPECT_NE(given_parameters(launch.kernel, launch.words), given_parameters(other.kernel, other.words));
        other = launch;
        for (Argument& word : other.words)  // the 20th divider of two dimensions
            if (record::argument_at(word.index) == 8 + 4 + 20 * 12) word.value ^= 1;
        EXPECT_EQ(given_parameters(launch.kernel, launch.words), given_parameters(other.kernel, other.words));
    }
}

TEST(KernelParameters, WhatIsNotKnownCountsAsRecorded) {
    const std::vector<Argument> pointers{{0x7f0000001000, 0}, {0x7f0000002000, 8}, {0, 77}};
    const GivenParameters as_recorded{{0x7f0000001000, 0x7f0000002000}, 77};
    EXPECT_EQ(given_parameters("my_kernel", pointers), as_recorded);
    EXPECT_EQ(given_parameters("vectorized_elementwise_kernel", pointers), as_recorded) << "words are missing";
    EXPECT_EQ(given_parameters("", {}), GivenParameters());
    std::vector<Argument> words{
        {5, record::argument_index(0, 0, 4) | record::kNoPointer}, {0x7f0000001000, record::argument_index(8, 1, 8)}, {0, 77}};
    EXPECT_EQ(given_parameters("void at::native::elementwise_kernel<128>", words).rest, 77u) << "too short for its family";
    words[0].index = record::argument_index(0, 9, 4) | record::kNoPointer;
    EXPECT_EQ(given_parameters("vectorized_elementwise_kernel", words).pointers.size(), 1u) << "numbers that nobody writes";
    words[0].index = record::argument_index(0, 0, 15) | record::kNoPointer;
    EXPECT_EQ(given_parameters("vectorized_elementwise_kernel", words).rest, 77u);
}

}  // namespace
}  // namespace millrace::diagnose
