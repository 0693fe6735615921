#include "comm/group.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>

namespace millrace::comm {
namespace {

/// Nobody to talk to: what a rank sends comes back.
class SingleGroup : public Group {
public:
    SingleGroup() {
        char name[256] = "";
        if (gethostname(name, sizeof name - 1) != 0) std::strcpy(name, "localhost");
        hosts_ = {name};
    }
    base::Result<std::unique_ptr<Group>> split(int) override { return single_group(); }

private:
    base::Status do_all_to_all(const void* send, void* receive, std::size_t bytes_each) override {
        if (send != receive && bytes_each > 0) std::memcpy(receive, send, bytes_each);
        return base::ok();
    }
    base::Status do_all_gather(const void* send, void* receive, std::size_t bytes_each) override {
        return do_all_to_all(send, receive, bytes_each);
    }
    base::Status do_broadcast(void*, std::size_t, int) override { return base::ok(); }
    base::Status do_barrier() override { return base::ok(); }
    base::Status do_all_reduce(float*, std::size_t) override { return base::ok(); }
};

}  // namespace

void Progress::begin() {
    changed_ = Clock::now().time_since_epoch().count();
    ++begun_;
}

void Progress::end() {
    changed_ = Clock::now().time_since_epoch().count();
    ++ended_;
}

std::optional<Progress::Clock::time_point> Progress::waiting_since() const {
    // In this order: one that begins and ends in between leaves the counts equal or the first one smaller.
    const std::uint64_t begun = begun_;
    if (begun <= ended_) return std::nullopt;
    return Clock::time_point(Clock::duration(changed_.load()));
}

template <class Work>
base::Status Group::counted(Work&& work) {
    progress().begin();
    ++shared_->messages;
    auto done = work();
    progress().end();
    if (!done.ok()) abandon();
    return done;
}

base::Status Group::all_to_all(const void* send, void* receive, std::size_t bytes_each) {
    return counted([&] { return do_all_to_all(send, receive, bytes_each); });
}

base::Status Group::all_gather(const void* send, void* receive, std::size_t bytes_each) {
    return counted([&] { return do_all_gather(send, receive, bytes_each); });
}

base::Status Group::broadcast(void* data, std::size_t bytes, int root) {
    return counted([&] { return do_broadcast(data, bytes, root); });
}

base::Status Group::barrier() {
    return counted([&] { return do_barrier(); });
}

base::Status Group::all_reduce(float* data, std::size_t count) {
    return counted([&] { return do_all_reduce(data, count); });
}

base::Result<std::vector<std::string>> Group::all_texts(Group& group, std::string_view text) {
    const auto ranks = static_cast<std::size_t>(group.size());
    const std::uint64_t length = text.size();
    std::vector<std::uint64_t> lengths(ranks);
    MILLRACE_TRY(group.all_gather(&length, lengths.data(), sizeof length));
    const std::size_t longest = *std::max_element(lengths.begin(), lengths.end());
    std::string own(text);
    own.resize(longest);
    std::string all(ranks * longest, '\0');
    MILLRACE_TRY(group.all_gather(own.data(), all.data(), longest));
    std::vector<std::string> texts;
    for (std::size_t rank = 0; rank < ranks; ++rank) texts.push_back(all.substr(rank * longest, lengths[rank]));
    return texts;
}

base::Status Group::agree(Group& group, const base::Status& own) {
    if (group.size() == 1) return own;
    MILLRACE_LET(texts, all_texts(group, own.ok() ? "" : fmt::format("{} {}", own.error().exit_status, own.error().text())));
    const auto first = std::find_if(texts.begin(), texts.end(), [](const std::string& text) { return !text.empty(); });
    if (first == texts.end()) return base::ok();
    const auto rank = static_cast<std::size_t>(first - texts.begin());
    base::Error error{"", "", std::atoi(first->c_str())};
    if (group.rank() == 0) error.message = first->substr(first->find(' ') + 1);
    if (group.rank() == 0 && rank > 0) error.place = fmt::format("rank {} on {}", rank, group.hosts()[rank]);
    return error;
}

std::unique_ptr<Group> single_group() { return std::make_unique<SingleGroup>(); }

}  // namespace millrace::comm
