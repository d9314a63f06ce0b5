package main

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"io"
	"strconv"
	"sync"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/emptypb"

	kube "reprieve.internal/kube/v1beta1"
	pb "reprieve.internal/scheduler/v1beta1"
	session "reprieve.internal/session/v1beta1"
)

// Service is the SchedulerService. RPCs without a method here answer UNIMPLEMENTED.
type Service struct {
	pb.UnimplementedSchedulerServiceServer
	mutex    sync.Mutex
	sessions map[string]*Session
}

// Session is a scheduler with the last request that counted, and its answer.
type Session struct {
	mutex     sync.Mutex
	sequence  uint64
	request   *pb.RunRoundRequest
	answer    *pb.RunRoundResponse
	scheduler *Scheduler
}

func (s *Service) CreateSession(
	_ context.Context, _ *pb.CreateSessionRequest,
) (*pb.Session, error) {
	name := make([]byte, 16)
	if _, err := rand.Read(name); err != nil {
		return nil, err
	}
	// Config stays empty: it has the settings that are followed, and first fit has none.
	answer := &pb.Session{
		SessionId:      hex.EncodeToString(name),
		Implementation: "first-fit-go",
		Version:        "0.1.0",
	}
	s.mutex.Lock()
	defer s.mutex.Unlock()
	s.sessions[answer.SessionId] = &Session{scheduler: newScheduler()}
	return answer, nil
}

func (s *Service) DeleteSession(
	_ context.Context, request *session.DeleteSessionRequest,
) (*emptypb.Empty, error) {
	if request.SessionId == "" {
		return nil, badField("session_id", "is required")
	}
	s.mutex.Lock()
	defer s.mutex.Unlock()
	delete(s.sessions, request.SessionId)
	return &emptypb.Empty{}, nil
}

func (s *Service) StreamingRunRound(stream pb.SchedulerService_StreamingRunRoundServer) error {
	for {
		request, err := stream.Recv()
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
		answer, err := s.RunRound(stream.Context(), request)
		if err != nil {
			return err
		}
		if err := stream.Send(answer); err != nil {
			return err
		}
	}
}

func (s *Service) RunRound(
	_ context.Context, request *pb.RunRoundRequest,
) (*pb.RunRoundResponse, error) {
	stamp := request.GetStamp()
	if stamp.GetSessionId() == "" {
		return nil, badField("stamp.session_id", "is required")
	}
	s.mutex.Lock()
	found := s.sessions[stamp.SessionId]
	s.mutex.Unlock()
	if found == nil {
		return nil, refuse(codes.NotFound, "SESSION_EXPIRED", nil, "there is no such session")
	}
	if !found.mutex.TryLock() {
		return nil, refuse(codes.Aborted, "BUSY", nil, "another request is being carried out")
	}
	defer found.mutex.Unlock()
	return found.run(request)
}

// run answers the next request of the session, or the last one again.
func (s *Session) run(request *pb.RunRoundRequest) (*pb.RunRoundResponse, error) {
	stamp, next := request.Stamp, s.sequence+1
	stamp.Traceparent = "" // the only part in which a retry may differ
	expected := map[string]string{"expected_sequence": strconv.FormatUint(next, 10)}
	switch {
	case stamp.Sequence == nil:
		return nil, badField("stamp.sequence", "is required")
	case stamp.GetSequence() == next:
	case stamp.GetSequence() != s.sequence || s.answer == nil:
		return nil, refuse(codes.Aborted, "SEQUENCE_MISMATCH", expected, "%d comes next", next)
	case !proto.Equal(request, s.request):
		return nil, refuse(codes.Aborted, "SEQUENCE_REUSED", expected, "%d comes next", next)
	default:
		return s.answer, nil
	}
	changes, err := readRound(request, s.scheduler.atNs)
	if err != nil {
		return nil, err // before anything has changed
	}
	outcomes := s.scheduler.run(request.Round, changes)
	s.sequence, s.request = next, request
	s.answer = &pb.RunRoundResponse{
		Rounds: []*pb.RoundOutcomes{outcomes}, Sequence: proto.Uint64(next),
	}
	return s.answer, nil
}

// readRound checks a request and returns what its events change.
func readRound(request *pb.RunRoundRequest, earliestNs int64) ([]Change, error) {
	round := request.Round
	switch {
	case round == nil:
		return nil, badField("round", "is required")
	case len(request.Window) > 0:
		return nil, badField("window", "is not served")
	case round.TimeNs < 0:
		return nil, badField("round.time_ns", "lies before the Unix epoch")
	case round.TimeNs < earliestNs:
		return nil, timeGoesBackwards(round.TimeNs, earliestNs)
	}
	for index, answer := range round.Answers {
		if answer.GetPop().GetUid() == "" {
			return nil, badField(fmt.Sprintf("round.answers[%d].pop.uid", index), "is required")
		}
	}
	var changes []Change
	lastNs := int64(0)
	for index, event := range round.Events {
		if event.TimeNs < lastNs || event.TimeNs > round.TimeNs {
			return nil, timeGoesBackwards(event.TimeNs, lastNs)
		}
		lastNs = event.TimeNs
		change, field, err := readEvent(event)
		if err != nil {
			return nil, badField(fmt.Sprintf("round.events[%d].%s", index, field), err.Error())
		}
		changes = append(changes, change)
	}
	return changes, nil
}

var errRequired = fmt.Errorf("is required")

// readEvent reads one event; an error is of the field.
func readEvent(event *pb.Event) (change Change, field string, err error) {
	change.atNs = event.TimeNs
	switch kind := event.Event.(type) {
	case *pb.Event_Add:
		field, err = change.readObject("add", kind.Add)
	case *pb.Event_Update:
		field, err = change.readObject("update", kind.Update)
	case *pb.Event_Patch:
		if kind.Patch.GetPod().GetUid() == "" {
			return change, "patch.pod.uid", errRequired
		}
		change.patch = kind.Patch
	case *pb.Event_Remove:
		if kind.Remove.GetKind() == "" {
			return change, "remove.kind", errRequired
		}
		change.remove = kind.Remove
	case *pb.Event_Tick: // what is due is looked at in every round
	default:
		return change, "event", errRequired
	}
	return change, field, err
}

// readObject reads a node or a pod; other kinds do not matter here.
func (c *Change) readObject(field string, object *kube.KubernetesObject) (string, error) {
	var err error
	switch {
	case object.GetObject() == nil:
		return field + ".object", errRequired
	case object.GetPod() != nil:
		if object.GetPod().GetMetadata().GetUid() == "" {
			return field + ".pod.metadata.uid", errRequired
		}
		c.pod, err = readPod(object.GetPod())
		return field + ".pod", err
	case object.GetNode() != nil:
		if object.GetNode().GetMetadata().GetName() == "" {
			return field + ".node.metadata.name", errRequired
		}
		c.node, err = readNode(object.GetNode())
		return field + ".node", err
	}
	return "", nil
}

// refuse returns a status with the ErrorInfo that the contract asks for.
func refuse(
	code codes.Code, reason string, metadata map[string]string, text string, values ...interface{},
) error {
	info := &errdetails.ErrorInfo{Reason: reason, Domain: "reprieve.internal", Metadata: metadata}
	found, err := status.Newf(code, text, values...).WithDetails(info)
	if err != nil {
		return err
	}
	return found.Err()
}

// badField refuses a request for a field, by its path.
func badField(field, problem string) error {
	violation := &errdetails.BadRequest_FieldViolation{Field: field, Description: problem}
	found, err := status.Newf(codes.InvalidArgument, "%s: %s", field, problem).WithDetails(
		&errdetails.ErrorInfo{Reason: "BAD_FIELD", Domain: "reprieve.internal"},
		&errdetails.BadRequest{FieldViolations: []*errdetails.BadRequest_FieldViolation{violation}},
	)
	if err != nil {
		return err
	}
	return found.Err()
}

func timeGoesBackwards(atNs, earliestNs int64) error {
	metadata := map[string]string{"earliest_time_ns": strconv.FormatInt(earliestNs, 10)}
	text := "%d ns lies before the last operation at %d ns, or after its round"
	return refuse(codes.FailedPrecondition, "TIME_GOES_BACKWARDS", metadata, text, atNs, earliestNs)
}
