#include "record/process_numbers.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fstream>

#include "record/fake_probe.h"
#include "temporary_folder.h"

namespace millrace::record {
namespace {

TEST(ProcessNumbers, OwnNumberIsTheInnermost) {
    EXPECT_EQ(own_number("Name:\tpython\nNSpid:\t4711\nVmPeak: 1 kB\n"), 4711u);
    EXPECT_EQ(own_number("Name:\tpython\nNStgid:\t9\t9\nNSpid:\t4711\t33\t7\n"), 7u);
    EXPECT_EQ(own_number("Name:\tNSpid: 3\nNSpid:\t5"), 5u);
    for (const char* text : {"", "Name:\tx\n", "NSpid:", "NSpid:\t", "NSpid:\tx\n", "NSpid:\t7\tx\n", "NSpid:\t0\n",
                             "NSpid:\t-3\n", "NSpid:\t99999999999999999999\n", "NSpid:\t4294967295\n"})
        EXPECT_EQ(own_number(text), std::nullopt) << text;
}

TEST(ProcessNumbers, OfThisProcessAreItsOwn) {
    const auto pid = static_cast<std::uint32_t>(::getpid());
    EXPECT_EQ(own_number_of(pid), pid);
    EXPECT_EQ(threads_by_own_number(pid).at(pid), pid);
    EXPECT_EQ(own_number_of(1u << 29), 1u << 29) << "nobody";
    EXPECT_TRUE(threads_by_own_number(1u << 29).empty());
    const test::TemporaryFolder folder;
    const test::FakeProbe probe(folder.path());
    EXPECT_EQ(find_owner(probe.path(), pid), pid);
    EXPECT_EQ(find_owner(folder / "7.probe", 7), 7u) << "no such file";
}

/// A /proc with two containers in which somebody has the number 7, besides our own 7.
class Containers : public ::testing::Test {
protected:
    Containers() {
        std::ofstream(file_) << "x";
        struct stat about {};
        EXPECT_EQ(::stat(file_.c_str(), &about), 0);
        inode_ = std::to_string(about.st_ino);
        add(7, "7", "1");
        add(100, "100\t7", "2");
        add(200, "200\t7", "3");
        add(300, "300\t8", inode_);
    }
    void add(int pid, const std::string& numbers, const std::string& inode) {
        const auto place = folder_.path() / std::to_string(pid);
        std::filesystem::create_directories(place / "task" / std::to_string(pid));
        std::ofstream(place / "status") << "Name:\tpython\nNSpid:\t" << numbers << "\n";
        std::ofstream(place / "task" / std::to_string(pid) / "status") << "Name:\tpython\nNSpid:\t" << numbers << "\n";
        map(pid, inode);
    }
    void map(int pid, const std::string& inode) {
        std::ofstream(folder_.path() / std::to_string(pid) / "maps")
            << "00400000-00500000 r-xp 00000000 08:01 " << inode << "                      /usr/bin/python3\n"
            << "7f0000000000-7f0008010000 rw-s 00000000 00:1a " << inode << "                      /inside/7.probe\n";
    }
    test::TemporaryFolder folder_;
    const io::Path file_ = folder_ / "7.probe";
    std::string inode_;
};

TEST_F(Containers, OwnerIsWhoHasTheNumberAndTheFile) {
    map(200, inode_);
    EXPECT_EQ(find_owner(file_, 7, folder_.path()), 200u);
    map(7, inode_);
    EXPECT_EQ(find_owner(file_, 7, folder_.path()), 7u);
}

TEST_F(Containers, WithoutTheFileOnlyOneCandidateIsBelieved) {
    EXPECT_EQ(find_owner(file_, 7, folder_.path()), 7u) << "there are three";
    EXPECT_EQ(find_owner(file_, 8, folder_.path()), 300u);
    EXPECT_EQ(find_owner(file_, 9, folder_.path()), 9u);
}

TEST_F(Containers, ThreadsAreFoundByTheirOwnNumbers) {
    const auto threads = threads_by_own_number(100, folder_.path());
    ASSERT_EQ(threads.size(), 1u);
    EXPECT_EQ(threads.at(7), 100u);
    EXPECT_EQ(own_number_of(100, folder_.path()), 7u);
}

}  // namespace
}  // namespace millrace::record
