#include "store/block_reader.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "store/aligned_buffer.h"

namespace everwarm::store {

BlockReader::BlockReader(std::shared_ptr<StoreState> state,
                         std::shared_ptr<BlockWriter> writer)
    : state_(std::move(state)), writer_(std::move(writer)) {}

void BlockReader::Enqueue(cache::LoadRequest request) {
  {
    MutexLock lock(state_->mutex);
    if (state_->closing) {
      return;
    }
    queue_.push_back(std::move(request));
    if (scheduled_tasks_ >= state_->options.reader_tasks) {
      return;
    }
    ++scheduled_tasks_;
  }
  state_->parts.readers->Schedule([self = shared_from_this()] { self->Run(); });
}

void BlockReader::Clear() {
  std::deque<cache::LoadRequest> dropped;
  MutexLock lock(state_->mutex);
  dropped.swap(queue_);
}

void BlockReader::AddStats(cache::TierStats& stats) const {
  MutexLock lock(state_->mutex);
  stats.pending_loads += queue_.size() + running_jobs_;
}

std::vector<BlockReader::Job> BlockReader::TakeJobs() {
  std::vector<Job> jobs;
  MutexLock lock(state_->mutex);
  // An even share for each task, so that all of them have work.
  const size_t share = (queue_.size() + state_->options.reader_tasks - 1) /
                       state_->options.reader_tasks;
  const size_t count = std::min(share, state_->options.reads_in_flight);
  for (size_t i = 0; i < count; ++i) {
    Job job;
    job.request = std::move(queue_.front());
    queue_.pop_front();
    if (const IndexEntry* entry =
            state_->index.Find({kOwnDir, job.request.identity.key})) {
      job.generation = entry->generation;
    }
    jobs.push_back(std::move(job));
  }
  running_jobs_ += jobs.size();
  if (jobs.empty()) {
    --scheduled_tasks_;
  }
  return jobs;
}

void BlockReader::Run() {
  const RunningTask task(*state_);
  if (!task.ok()) {
    return;
  }
  std::vector<Job> jobs = TakeJobs();
  if (jobs.empty()) {
    return;
  }
  const AlignedBuffer headers(jobs.size() * kHeaderBytes);
  std::vector<ReadJob> reads;
  std::vector<Job*> reading;
  for (size_t i = 0; i < jobs.size(); ++i) {
    if (state_->IsClosing()) {
      return;
    }
    Job& job = jobs[i];
    const absl::Status opened = OpenJob(job, headers.data() + i * kHeaderBytes);
    if (!opened.ok()) {
      Finish(job, opened);
      continue;
    }
    reads.push_back({job.file.get(), 0, job.buffers});
    reading.push_back(&job);
  }
  if (state_->IsClosing()) {
    return;
  }
  state_->parts.env->ReadMany(
      reads, [&](size_t i, absl::StatusOr<size_t> bytes) {
        Job& job = *reading[i];
        Finish(job, bytes.ok() ? Verify(job, *bytes) : bytes.status());
      });
  // One batch a turn: other tasks of the executor get theirs.
  state_->parts.readers->Schedule([self = shared_from_this()] { self->Run(); });
}

absl::Status BlockReader::OpenJob(Job& job, std::byte* header_page) {
  const cache::BlockIdentity& identity = job.request.identity;
  if (identity.key.group >= state_->options.groups.size()) {
    return absl::InvalidArgumentError(
        absl::StrCat("no layer group ", identity.key.group));
  }
  const BlockGeometry& geometry = state_->SchemeOf(identity).geometry;
  const auto tokens = static_cast<uint32_t>(identity.tokens.size());
  if (tokens == 0 || tokens > MostTokens(geometry)) {
    return absl::InvalidArgumentError(absl::StrCat(tokens, " tokens"));
  }
  EW_ASSIGN_OR_RETURN(
      job.file, state_->parts.env->OpenForRead(
                    state_->PathOf({kOwnDir, identity.key}), {.direct = true}));
  EW_ASSIGN_OR_RETURN(const FileInfo info, job.file->Stat());
  const size_t padded = AlignUp(geometry.PayloadBytes(tokens), kSlotAlignment);
  if (info.size != kHeaderBytes + padded) {
    return absl::DataLossError(absl::StrCat(
        "file has ", info.size, " bytes instead of ", kHeaderBytes + padded));
  }
  job.buffers = {MutableBytes(header_page, kHeaderBytes),
                 MutableBytes(job.request.block->data(), padded)};
  return absl::OkStatus();
}

absl::Status BlockReader::Verify(const Job& job, size_t bytes) {
  if (bytes != job.buffers[0].size() + job.buffers[1].size()) {
    return absl::DataLossError(absl::StrCat("file ends after ", bytes));
  }
  const cache::BlockIdentity& identity = job.request.identity;
  const GroupScheme& scheme = state_->SchemeOf(identity);
  EW_ASSIGN_OR_RETURN(const BlockHeader header, DecodeHeader(job.buffers[0]));
  EW_RETURN_IF_ERROR(
      CheckIdentity(header, state_->options.fingerprint, scheme, identity));
  std::byte* slot = job.buffers[1].data();
  if (state_->options.verify_payload &&
      ChecksumPayload({slot, header.payload_bytes()}) != header.checksum) {
    return absl::DataLossError("wrong checksum of the payload");
  }
  if (!header.full()) {
    UnpackInPlace(scheme.geometry, header.num_tokens(), slot);
  }
  return absl::OkStatus();
}

void BlockReader::Finish(Job& job, const absl::Status& status) {
  job.file.reset();
  const BlockKey key = job.request.identity.key;
  const uint64_t bytes = job.buffers[0].size() + job.buffers[1].size();
  const absl::Status failure =
      status.ok() ? absl::OkStatus() : GiveUp(job, status);
  if (!failure.ok()) {
    // Nobody is to see a slot that is half right.
    job.request.block = cache::BlockRef();
  }
  {
    MutexLock lock(state_->mutex);
    --running_jobs_;
    if (failure.ok()) {
      ++state_->counters.loaded;
      state_->counters.loaded_bytes += bytes;
      state_->AddEvents(
          {cache::LoadedEvent{key, std::move(job.request.block)}});
    } else {
      ++state_->counters.failed_loads;
      state_->AddEvents({cache::LoadFailedEvent{key, failure}});
    }
  }
  state_->WakeUp();
}

absl::Status BlockReader::GiveUp(const Job& job, const absl::Status& status) {
  const FileId id{kOwnDir, job.request.identity.key};
  const std::string path = state_->PathOf(id);
  writer_->GiveUp(id, job.generation, status);
  state_->parts.logger->warn("cannot load {}: {}", path, status.ToString());
  if (IsDamage(status)) {
    return absl::DataLossError(status.message());
  }
  return absl::IsNotFound(status) ? status
                                  : absl::UnavailableError(status.message());
}

}  // namespace everwarm::store
