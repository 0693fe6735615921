#pragma once
// Programs that never ran: a host that computes, launches and waits, a device with streams, loader workers, and a recorder that
// writes down what happens as a Timeline. Its rules are those of CUDA in small, written apart from the replay that is tested with
// it. Times in microseconds at this interface. The truth about an illness is the step time with it less that without.

#include <algorithm>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "diagnose/answer/policy.h"
#include "diagnose/timeline/timeline.h"

namespace millrace::diagnose {

constexpr std::uint32_t kMainThread = 4001, kBackwardThread = 4002, kCopyThread = 4003, kProcess = 4001, kWorker = 5001;
constexpr std::uint32_t kStream = 7, kSideStream = 13;

inline Frame user_line(int line, const std::string& function = "<module>") { return {"/home/u/train.py", line, function, false}; }
inline Frame torch_line(const std::string& file, const std::string& function, int line = 100) {
    return {"/usr/lib/python3/dist-packages/torch/" + file, line, function, false};
}

class SimulatedProgram {
public:
    struct Traits {
        double launch_us = 6;     ///< host time inside a launch
        double submit_us = 0;     ///< of that, until the device has it
        double operator_us = 8;   ///< of the framework between launches
        double recording_us = 0;  ///< that recording adds to each call
        std::size_t queue = 1024;
        double jitter = 0.03;
        double pageable_bytes_per_us = 8'000, pinned_bytes_per_us = 50'000;
        double malloc_us = 150, free_us = 90;
        std::uint64_t seed = 12345;  ///< of the jitter
    };

    explicit SimulatedProgram(Traits traits) : traits_(traits), seed_(traits.seed) {
        timeline.names = {""};
        timeline.stacks = {{}};
        timeline.has_call_stacks = true;
        timeline.loops.add({user_line(1).file, "<module>", {{1, 999}}});
        timeline.processors = 16;
        timeline.presence_share = 0;
        timeline.link_bytes_per_second = traits.pinned_bytes_per_us * 1e6 / Policy{}.link_efficiency;
        timeline.processes = {{kProcess, 1, "python train.py", true, kMainThread},
                              {kWorker, kProcess, "python worker", false, kWorker}};
    }

    // ---- where the host is
    /// Frames from the innermost on, until the next call.
    void at(Stack stack) {
        stack_ = std::move(stack);
        if (stack_.empty() || stack_.back().function != "<module>")
            stack_.push_back(user_line(stack_.empty() ? 1 : stack_.back().line));
    }
    void at(int line) { at({torch_line("nn/modules/linear.py", "forward"), user_line(line)}); }
    double now_us() const { return static_cast<double>(now_) * 1e-3; }

    // ---- what the host does
    /// Host work in the innermost frame.
    void work(double us, char state = 'R', const std::string& wait = "") {
        const Time begin = now_;
        now_ += varied(us);
        doings_.push_back({begin, now_, kProcess, kMainThread, state, stack_id(stack_), name_id(wait)});
    }
    void collect_garbage(double us) {
        const Time begin = now_;
        work(us);
        timeline.collections.push_back({begin, now_, kProcess, kMainThread, kNoName});
    }

    // ---- calls; the framework comes before each
    std::uint32_t launch(const std::string& name, double device_us, std::uint32_t stream = kStream,
                         std::vector<std::uint64_t> pointers = {}, std::uint64_t rest = 0) {
        const Stack before = stack_;
        if (name == "multi_tensor_apply_kernel") {  // an optimizer's
            std::erase_if(stack_, [](const Frame& frame) { return frame.file.find("/torch/") != std::string::npos; });
            stack_.insert(stack_.begin(), torch_line("optim/adamw.py", "step"));
        }
        const auto id = enqueue(CallKind::kLaunch, name, device_us, stream, {});
        stack_ = before;
        if (!pointers.empty()) timeline.arguments.push_back({kProcess, id, std::move(pointers), rest});
        return id;
    }
    /// Its last node updates parameters, if it shall.
    void graph(double device_us, int nodes, bool updates = false) {
        framework();
        const Time begin = now_;
        make_room();
        const std::uint32_t id = ++correlation_;
        Time start = std::max(now_ + us(4), free_[kStream] + us(1));
        for (int i = 0; i < nodes; ++i) {
            const std::string name = updates && i + 1 == nodes ? "multi_tensor_apply_kernel" : "node" + std::to_string(i % 5);
            Work work = kernel(name, start, start + us(device_us / nodes), kStream, id);
            work.graph_node = static_cast<std::uint64_t>(i) + 1;
            timeline.work.push_back(work);
            start = work.end + us(0.5);
        }
        finish_job(kStream, start);
        end_call(CallKind::kGraphLaunch, "cudaGraphLaunch", begin, 10, id);
    }
    /// Upload; pageable ones block, as does everything with `synchronous`.
    void upload(double bytes, bool pinned, std::uint64_t content = 0, std::uint32_t stream = kStream) {
        copy(bytes, pinned ? MemoryKind::kPinned : MemoryKind::kPageable, MemoryKind::kDevice, content, stream, !pinned);
    }
    void download(double bytes, bool pinned) {
        copy(bytes, MemoryKind::kDevice, pinned ? MemoryKind::kPinned : MemoryKind::kPageable, 0, kStream, !pinned);
    }
    /// loss.item(): a small copy and a wait.
    void item() {
        download(4, true);
        stream_sync();
    }
    void stream_sync(std::uint32_t stream = kStream) {
        wait_until(CallKind::kStreamSync, "cudaStreamSynchronize", free_[stream]);
    }
    void device_sync() { wait_until(CallKind::kDeviceSync, "cudaDeviceSynchronize", all_free()); }
    void free_memory() { wait_until(CallKind::kFree, "cudaFree", all_free(), traits_.free_us); }
    void allocate() {
        const Time begin = now_;
        end_call(CallKind::kAlloc, "cudaMalloc", begin, traits_.malloc_us, 0);
    }
    void load_module() {
        const Time begin = now_;
        end_call(CallKind::kModuleLoad, "cuLibraryLoadData", begin, 900, 0);
    }
    /// `waiter` goes on when what `on` has now is done.
    void stream_wait(std::uint32_t waiter, std::uint32_t on) {
        const Time first = now_;
        end_call(CallKind::kEventRecord, "cudaEventRecord", first, 1, 0);
        const Time begin = now_;
        free_[waiter] = std::max(free_[waiter], free_[on]);
        end_call(CallKind::kStreamWait, "cudaStreamWaitEvent", begin, 1, 0);
    }

    // ---- threads
    /// What follows until `end_backward` is called on the framework's thread, while the main thread waits in `line`.
    void begin_backward(int line) { begin_backward({user_line(line)}); }
    void begin_backward(Stack callers) {
        backward_begin_ = now_;
        callers.insert(callers.begin(),
                       {torch_line("autograd/graph.py", "_engine_run_backward"), torch_line("_tensor.py", "backward")});
        at(std::move(callers));
        thread_ = kBackwardThread;
    }
    void end_backward() {
        doings_.push_back({backward_begin_, now_, kProcess, kMainThread, 'S', stack_id(stack_), name_id("futex")});
        thread_ = kMainThread;
    }
    /// A copy of another thread, now, beside the host's own time.
    void foreign_upload(double bytes) {
        const Time begin = now_ + us(3);
        const std::uint32_t id = ++correlation_;
        const Time start = std::max(begin + us(5), free_[kSideStream]);
        Work work{start,
                  start + us(bytes / traits_.pinned_bytes_per_us),
                  kProcess,
                  0,
                  WorkKind::kCopy,
                  false,
                  false,
                  kSideStream,
                  name_id("memcpy"),
                  id};
        work.bytes = static_cast<std::uint64_t>(bytes);
        work.from = MemoryKind::kPinned, work.to = MemoryKind::kDevice;
        timeline.work.push_back(work);
        free_[kSideStream] = work.end;
        timeline.calls.push_back(
            {begin, begin + us(6), kProcess, kCopyThread, CallKind::kCopyAsync, false, name_id("cudaMemcpyAsync"), 0, id});
    }

    // ---- a loader with workers: each batch costs them `batch_us` of their time, `ahead` batches wait at most
    void next_batch(double batch_us, std::size_t ahead, int line, char worker_state = 'R', const Stack& worker_stack = {}) {
        const Time taken = batches_.size() >= ahead ? consumed_[batches_.size() - ahead] : 0;
        const Time begin = std::max(batches_.empty() ? first_batch_ : batches_.back(), taken);
        const Time ready = begin + varied(batch_us);
        batches_.push_back(ready);
        doings_.push_back({begin, ready, kWorker, kWorker, worker_state,
                           stack_id(worker_stack.empty() ? Stack{user_line(90, "__getitem__"),
                                                                 torch_line("utils/data/_utils/worker.py", "_worker_loop")}
                                                         : worker_stack),
                           name_id(worker_state == 'D' ? "pread64" : "")});
        if (batches_.size() > 1 && begin > batches_[batches_.size() - 2])
            doings_.push_back({batches_[batches_.size() - 2], begin, kWorker, kWorker, 'S',
                               stack_id({{"/usr/lib/python3.11/multiprocessing/queues.py", 100, "get", false}}),
                               name_id("futex")});
        at({{"/usr/lib/python3.11/queue.py", 171, "get", false},
            torch_line("utils/data/dataloader.py", "__next__"),
            user_line(line)});
        if (ready > now_) {
            const Time asleep = now_;
            now_ = ready;
            doings_.push_back({asleep, now_, kProcess, kMainThread, 'S', stack_id(stack_), name_id("futex")});
        }
        work(60);
        consumed_.push_back(now_);
    }

    // ---- the end
    /// Waits for the device: what a clock around the loop would show.
    double finish_us() {
        now_ = std::max(now_, all_free());
        return now_us();
    }
    void mark_step(const std::string& name, double begin_us) {
        timeline.ranges.push_back({us(begin_us), now_, kProcess, kMainThread, name_id(name)});
    }
    void record_window() { timeline.windows.push_back({0, std::max(now_, all_free()) + us(1), kProcess}); }
    /// Sorts everything and samples the host.
    Timeline take(double sample_us = 10'000) {
        const auto by_begin = [](const auto& a, const auto& b) { return a.begin < b.begin; };
        std::stable_sort(timeline.calls.begin(), timeline.calls.end(), by_begin);
        std::stable_sort(timeline.work.begin(), timeline.work.end(), by_begin);
        std::stable_sort(timeline.collections.begin(), timeline.collections.end(), by_begin);
        std::stable_sort(doings_.begin(), doings_.end(), by_begin);
        sample(sample_us);
        return std::move(timeline);
    }

    Timeline timeline;

private:
    struct DoingNow {
        Time begin, end;
        std::uint32_t process, thread;
        char state;
        std::uint32_t stack, wait;
    };

    static Time us(double value) { return static_cast<Time>(value * 1e3); }
    Time varied(double value) {
        seed_ = seed_ * 6364136223846793005ull + 1442695040888963407ull;
        const double unit = static_cast<double>(seed_ >> 40) / static_cast<double>(1 << 24) * 2 - 1;
        return us(value * (1 + traits_.jitter * unit));
    }
    std::uint32_t name_id(const std::string& name) {
        auto [found, fresh] = names_.try_emplace(name, static_cast<std::uint32_t>(timeline.names.size()));
        if (name.empty()) return kNoName;
        if (fresh) timeline.names.push_back(name);
        return found->second;
    }
    std::uint32_t stack_id(const Stack& stack) {
        std::string key;
        for (const Frame& frame : stack) key += frame.file + ":" + std::to_string(frame.line) + frame.function + "|";
        auto [found, fresh] = stacks_.try_emplace(key, static_cast<std::uint32_t>(timeline.stacks.size()));
        if (fresh) timeline.stacks.push_back(stack);
        return found->second;
    }
    Time all_free() const {
        Time latest = 0;
        for (const auto& [stream, time] : free_) latest = std::max(latest, time);
        return latest;
    }
    /// The framework on its way to the next call.
    void framework() {
        const Time begin = now_;
        now_ += varied(traits_.operator_us + traits_.recording_us);
        if (thread_ == kMainThread) doings_.push_back({begin, now_, kProcess, kMainThread, 'R', stack_id(stack_), kNoName});
    }
    void make_room() {
        while (!under_way_.empty() && under_way_.front() <= now_) under_way_.pop_front();
        if (under_way_.size() >= traits_.queue) {
            now_ = std::max(now_, under_way_[under_way_.size() - traits_.queue]);
            while (!under_way_.empty() && under_way_.front() <= now_) under_way_.pop_front();
        }
    }
    void finish_job(std::uint32_t stream, Time end) {
        free_[stream] = end;
        under_way_.insert(std::upper_bound(under_way_.begin(), under_way_.end(), end), end);
    }
    Work kernel(const std::string& name, Time begin, Time end, std::uint32_t stream, std::uint32_t id) {
        return {begin, end, kProcess, 0, WorkKind::kKernel, false, stream, name_id(name), id};
    }
    void end_call(CallKind kind, const std::string& name, Time begin, double own_us, std::uint32_t id, Call facts = {}) {
        now_ = std::max(now_, begin) + varied(own_us);
        facts.begin = begin, facts.end = now_, facts.process = kProcess, facts.thread = thread_, facts.kind = kind;
        facts.name = name_id(name), facts.correlation = id;
        facts.stack = thread_ == kMainThread ? stack_id(stack_) : kNoStack;
        timeline.calls.push_back(facts);
        if (thread_ == kMainThread) doings_.push_back({begin, now_, kProcess, kMainThread, 'R', stack_id(stack_), kNoName});
    }
    std::uint32_t enqueue(CallKind kind, const std::string& name, double device_us, std::uint32_t stream, Call facts) {
        framework();
        const Time begin = now_;
        make_room();
        const std::uint32_t id = ++correlation_;
        const Time start = std::max(now_ + us(4 + traits_.submit_us), free_[stream] + us(1));
        timeline.work.push_back(kernel(name, start, start + us(device_us), stream, id));
        finish_job(stream, start + us(device_us));
        end_call(kind, "cudaLaunchKernel", begin, traits_.launch_us, id, facts);
        return id;
    }
    void copy(double bytes, MemoryKind from, MemoryKind to, std::uint64_t content, std::uint32_t stream, bool blocks) {
        framework();
        const Time begin = now_;
        const std::uint32_t id = ++correlation_;
        const bool pageable = from == MemoryKind::kPageable || to == MemoryKind::kPageable;
        const double device_us = 2 + bytes / (pageable ? traits_.pageable_bytes_per_us : traits_.pinned_bytes_per_us);
        const Time start = std::max(now_ + us(5), free_[stream] + us(1));
        Work work{start, start + us(device_us), kProcess, 0, WorkKind::kCopy, false, stream, name_id("memcpy"), id};
        work.bytes = static_cast<std::uint64_t>(bytes);
        work.from = from, work.to = to;
        timeline.work.push_back(work);
        finish_job(stream, work.end);
        // Small uploads from pageable memory travel with the command.
        if (blocks && (bytes > 65536 || to != MemoryKind::kDevice)) now_ = std::max(now_, work.end);
        Call facts;
        facts.bytes = work.bytes, facts.from = from, facts.to = to, facts.content = content;
        end_call(CallKind::kCopyAsync, "cudaMemcpyAsync", begin, 6, id, facts);
    }
    void wait_until(CallKind kind, const std::string& name, Time time, double own_us = 3) {
        const Time begin = now_;
        now_ = std::max(now_, time);
        end_call(kind, name, begin, own_us, 0);
    }
    void sample(double sample_us) {
        std::map<std::uint32_t, Time> next;
        for (const DoingNow& doing : doings_) {
            Time& due = next.try_emplace(doing.thread, us(sample_us * 0.37)).first->second;
            while (due < doing.begin) due += us(sample_us);
            for (; due < doing.end; due += us(sample_us))
                timeline.samples.push_back({due, doing.process, doing.thread, doing.state, doing.stack, doing.wait});
        }
        std::stable_sort(timeline.samples.begin(), timeline.samples.end(),
                         [](const Sample& a, const Sample& b) { return a.time < b.time; });
    }

    Traits traits_;
    Time now_ = 1'000'000;
    Stack stack_{user_line(1)};
    std::uint32_t thread_ = kMainThread, correlation_ = 0;
    std::uint64_t seed_;
    std::map<std::uint32_t, Time> free_;
    std::deque<Time> under_way_;
    std::map<std::string, std::uint32_t> names_, stacks_;
    std::vector<DoingNow> doings_;
    std::vector<Time> batches_, consumed_;
    Time first_batch_ = 0, backward_begin_ = 0;
};

/// One step of a program; `cured` leaves its illness out.
using StepBody = std::function<void(SimulatedProgram&, int step, bool cured)>;

struct Simulation {
    Timeline timeline;
    double step_ms = 0;  ///< by a clock around the loop
};

inline Simulation simulate(const StepBody& body, bool cured, int steps = 60, SimulatedProgram::Traits traits = {}) {
    SimulatedProgram program(traits);
    for (int i = 0; i < 3; ++i) body(program, i, cured);
    const double begin = program.finish_us();
    for (int i = 3; i < steps; ++i) body(program, i, cured);
    const double end = program.finish_us();
    program.record_window();
    return {program.take(), (end - begin) * 1e-3 / (steps - 3)};
}

}  // namespace millrace::diagnose
