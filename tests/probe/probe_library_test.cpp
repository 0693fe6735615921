#include "record/probe_files.h"

#include <elf.h>
#include <gtest/gtest.h>

#include <fstream>
#include <iterator>

#include "places.h"
#include "temporary_folder.h"

namespace millrace::record {
namespace {

constexpr const char* kName = "libmillrace-probe.so";

std::string message_of(const io::Path& path) {
    const auto checked = check_probe_library(path);
    return checked.ok() ? "" : checked.error().text();
}

TEST(ProbeLibrary, WhatIsNoProbeIsRefused) {
    const test::TemporaryFolder folder;
    const io::Path probe = testing::program_folder() / kName;
    ASSERT_EQ(check_probe_library(probe).value(), probe.string());
    EXPECT_NE(message_of(folder / "missing").find("no such file"), std::string::npos);
    EXPECT_NE(message_of(folder / ".").find("is not a file"), std::string::npos);
    EXPECT_NE(message_of("/etc/passwd").find("is not a shared library"), std::string::npos);
    EXPECT_NE(message_of("/proc/self/exe").find("without the entry point"), std::string::npos);

    std::ifstream file(probe, std::ios::binary);
    std::string bytes(std::istreambuf_iterator<char>(file), {});
    const auto changed = [&](std::size_t at, char value) {
        std::string other = bytes;
        other[at] = value;
        std::ofstream(folder / "changed", std::ios::binary) << other;
        return message_of(folder / "changed");
    };
    EXPECT_NE(changed(offsetof(Elf64_Ehdr, e_machine), EM_SPARC).find("another architecture"), std::string::npos);
    EXPECT_NE(changed(offsetof(Elf64_Ehdr, e_type), ET_REL).find("is not a shared library"), std::string::npos);
    EXPECT_EQ(check_probe_library("/etc/passwd").error().exit_status, 2);
}

TEST(ProbeLibrary, IsFoundBesideTheProgramOrInItsLibraries) {
    const test::TemporaryFolder folder;
    const io::Path programs = folder / "bin";
    for (const char* below : {"bin", "lib/millrace"}) std::filesystem::create_directories(folder / below);
    const auto missing = find_probe_library(programs);
    ASSERT_FALSE(missing.ok());
    EXPECT_EQ(missing.error().exit_status, 3);
    EXPECT_NE(missing.error().text().find("--probe FILE"), std::string::npos);
    for (const io::Path& place : {folder / kName, folder / "lib/millrace" / kName, folder / "lib" / kName, programs / kName}) {
        std::filesystem::copy_file(testing::program_folder() / kName, place);
        EXPECT_EQ(find_probe_library(programs).value(), place.string()) << "the nearest wins";
    }
    std::ofstream(programs / kName) << "cut";
    EXPECT_EQ(find_probe_library(programs).error().exit_status, 3) << "it is the one that would be loaded";
}

}  // namespace
}  // namespace millrace::record
