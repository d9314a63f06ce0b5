// first-fit-go is a scheduler for Reprieve: each pod goes to the first node that it fits on. It
// places pods and says in kube-scheduler's words why others wait; it never preempts.
package main

import (
	"flag"
	"fmt"
	"log"
	"net"
	"os"
	"os/signal"
	"syscall"

	"google.golang.org/grpc"

	pb "reprieve.internal/scheduler/v1beta1"
)

func main() {
	listen := flag.String("listen", "127.0.0.1:50064", "where to listen, HOST:PORT")
	flag.Parse()
	listener, err := net.Listen("tcp", *listen)
	if err != nil {
		log.Fatal(err)
	}
	server := grpc.NewServer()
	pb.RegisterSchedulerServiceServer(server, &Service{sessions: map[string]*Session{}})
	ended := make(chan os.Signal, 1)
	signal.Notify(ended, syscall.SIGTERM, os.Interrupt)
	go func() {
		<-ended
		server.Stop()
	}()
	fmt.Println("first-fit-go listening on", listener.Addr())
	if err := server.Serve(listener); err != nil {
		log.Fatal(err)
	}
}
